// Package controller holds the reconcilers: thin shells that observe objects,
// let expand.Decide decide, and carry the plan out. It owns the order of writes
// and the fences around them (docs/architecture.md), and never decides itself
// whether a node grows or shrinks.
package controller
