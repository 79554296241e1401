package informer

import (
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
)

// exclude records the addresses of a cluster object that no pod may get, and queues the
// nodes that hold any of them. Changed queues the pools.
func (f *Feed) exclude(kind, name string, cidrs []netip.Prefix) {
	f.queueHolders(f.Ledger.Exclude(exclude.Claimant{Kind: kind, Name: name}, cidrs))
}

// excludeCiliumNode does so for the CIDRs that a CiliumNode names, which depend on the blocks of
// its node.
func (f *Feed) excludeCiliumNode(name string) { f.queueHolders(f.Ledger.ExcludeCiliumNode(name)) }

func (f *Feed) queueHolders(added, removed []netip.Prefix) {
	for _, p := range slices.Concat(added, removed) {
		for _, held := range f.Ledger.HeldIn(p) {
			f.QueueNode(held.Owner.Node)
		}
	}
}

// offerToServices records the ranges that Cilium may give to Services.
func (f *Feed) offerToServices(name string, ranges []netip.Prefix) {
	if f.Ledger.OfferToServices(name, ranges) {
		f.AllPools() // no other change would queue them
	}
}
