// Package controller holds the reconcilers: thin shells that observe objects, call
// expand.Decide, and carry out the plan. It owns the order of writes and the fences
// around them (docs/contributing/architecture.md), and never decides itself whether a node grows or
// shrinks.
package controller
