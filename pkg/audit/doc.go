// Package audit says what is wrong in a cluster: addresses on two nodes, pods on
// addresses nobody owns, blocks and CiliumNodes that do not agree, handshakes
// that stand still. Check is a pure function from a snapshot of objects to
// findings.
//
// It never talks to Kubernetes, reads a clock, logs, or mends anything. Package
// audit/live reads snapshots.
package audit
