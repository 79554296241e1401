// Package plugin is kubectl cilium-pool: it shows, explains and asks. It owns
// no idea of addresses: what is held, free or due is what pkg/controller's
// ledger, pkg/crd and pkg/expand say of a snapshot by pkg/audit/live.
//
// All commands but drain only read. None writes a CiliumNode or a block's
// status: that is the operator's.
package plugin
