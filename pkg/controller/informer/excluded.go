package informer

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
)

// exclude records the addresses of a cluster object that no pod may get, and queues the
// nodes that hold any of them. Changed queues the pools.
func (f *Feed) exclude(kind, name string, cidrs []netip.Prefix) {
	f.queueHolders(f.Ledger.Exclude(exclude.Claimant{Kind: kind, Name: name}, cidrs))
}

// excludeCiliumNode does so for what a CiliumNode names, which depends on the blocks of
// its node.
func (f *Feed) excludeCiliumNode(name string) { f.queueHolders(f.Ledger.ExcludeCiliumNode(name)) }

func (f *Feed) queueHolders(added, removed []netip.Prefix) {
	for _, p := range slices.Concat(added, removed) {
		for _, held := range f.Ledger.HeldIn(p) {
			f.QueueNode(held.Owner.Node)
		}
	}
}

func (f *Feed) serviceCIDR(s *networkingv1.ServiceCIDR) {
	f.exclude(exclude.ServiceCIDR, s.Name, exclude.OfServices(s))
}

func (f *Feed) serviceCIDRGone(s *networkingv1.ServiceCIDR) {
	f.exclude(exclude.ServiceCIDR, s.Name, nil)
}
