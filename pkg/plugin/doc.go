// Package plugin implements kubectl cilium-pool. It has no logic of its own about
// addresses: what is held, free or due follows from pkg/controller's ledger,
// pkg/crd and pkg/expand, on a snapshot read by pkg/audit/live.
//
// Only drain and migrate write: pools, blocks, and annotations of Nodes. No
// command writes a CiliumNode or a block's status; the operator does.
package plugin
