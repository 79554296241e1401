// Package informer brings what watches show into pkg/state and queues what it
// concerns: state first, then the queues, so that a reconcile never runs on less than
// what woke it. It stores objects in the form that decisions need, and decides nothing.
package informer
