// Package informer brings the watches' events into pkg/state and queues the affected objects: state
// first, then the queues, so that a reconcile never runs on less than the event that woke it. It
// stores objects in the form of decisions, and makes none.
package informer
