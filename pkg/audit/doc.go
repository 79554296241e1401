// Package audit reports faults of a cluster: addresses on two nodes, pods on addresses without an
// owner, blocks and CiliumNodes that disagree, stuck handshakes. Check is a pure function from a
// snapshot of objects to findings.
//
// It never talks to Kubernetes, reads a clock, logs, or repairs anything. Package
// audit/clusterread reads snapshots.
package audit
