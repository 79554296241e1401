package controller

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Observer puts together what expand.Decide is asked on, out of pools, blocks
// and CiliumNodes however they were read. It changes nothing.
type Observer struct {
	Ledger *Ledger
	Pools  *Pools
	// Defaults hold where a pool, or no pool, says otherwise.
	Defaults crd.Defaults
	// Paused stops all writes about nodes and blocks.
	Paused bool
	// IgnoreTaints are keys of taints of Nodes that Cilium does not run on.
	IgnoreTaints map[string]bool
	// StartupTaints are keys of taints of Nodes whose labels are not final.
	StartupTaints map[string]bool
}

// Policy is what rules one family of a node, which may be nil, for one pool of
// Cilium's: the pools to claim from, best first, the policy, and why nothing may
// change ("": it may).
func (o *Observer) Policy(node *corev1.Node, f ipalloc.Family, ciliumPool string) (pools []*crd.Pool, policy expand.Policy, paused string) {
	if node != nil && !o.optedOut(node) {
		pools = crd.ForFamily(o.Pools.Match(labels.Set(node.Labels)), f, ciliumPool)
	}
	if len(pools) > 0 {
		policy = pools[0].Policy
	} else {
		policy = o.Defaults.Policy
		policy.ReclaimDisabled = true // nobody says what the node needs
	}
	return pools, policy, o.pausedBecause(node, pools)
}

// State adds to what is known of one family of a node, for one pool of Cilium's,
// what its CiliumNode, which may be nil, and its blocks, of any family and pool,
// say.
func (o *Observer) State(s expand.State, ciliumPool string, view *ciliumnode.View, blocks []crd.Block) expand.State {
	mine, others := o.split(blocks, ciliumPool, view)
	share := view.Of(ciliumPool)
	for _, b := range mine {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == s.Family {
			state := o.blockState(b, share)
			state.Nobodys = o.isNobodys(b, view)
			s.Blocks = append(s.Blocks, state)
		}
	}
	if share != nil {
		s.Pool, s.Used, s.Release = share.Pool, share.Used, releaseOf(share.Release, ciliumPool, mine, others)
		s.Own, s.Limits = share.InUse(), share.Limits
		s.NotRun = share.Whole == nil && share.NotRun(s.Family) // else it says so by what it requests
		s.Whole = wholeOf(share, s.Family, mine)
	}
	return s
}

// blockState is a block as expand sees it.
func (o *Observer) blockState(b crd.Block, view *ciliumnode.View) expand.Block {
	s := expand.Block{CIDR: b.CIDR, Phase: b.Phase, Reason: b.Reason}
	s.Listed = view != nil && view.Lists(b.CIDR)
	s.Leftover = view != nil && view.Leftover(b.CIDR)
	pool := o.Pools.Get(b.Pool)
	switch {
	case b.CIDR.Addr().BitLen()-b.CIDR.Bits() > ipalloc.MaxHostBits:
		// Too large to list. The block controller tells so.
	case pool != nil && !pool.Frozen():
		s.Usable = o.Publishable(view, pool, b.CIDR)
	case view != nil:
		s.Usable = o.withoutExcluded(view, b.CIDR, view.PublishedIn(b.CIDR)) // its pool says no more; keep what is there
	}
	s.Request = requestOn(b, pool)
	if len(o.Ledger.Overlaps(b.CIDR)) > 0 {
		// What is published stays, and nothing is added beside it.
		s.Conflict, s.Usable = !s.Listed, nil
		if s.Listed {
			s.Usable = view.PublishedIn(b.CIDR)
		}
	}
	if b.Phase == ipalloc.CoolingDown {
		s.RestUntil = b.Since.Add(o.cooldown(b, pool))
	}
	return s
}

// requestOn is why people ask a block of pool, which may be nil, back.
func requestOn(b crd.Block, pool *crd.Pool) (request expand.Reason) {
	switch {
	case b.Deleting:
		request = expand.Deleted
	case pool == nil, pool.Deleting:
		request = expand.PoolDeleted
	case pool.Frozen() && b.Phase == ipalloc.Draining && b.Reason == expand.CIDRDraining:
		request = expand.CIDRDraining // what has begun goes on: nothing says that it is to stop
	case pool.Drains(b.CIDR):
		request = expand.CIDRDraining
	}
	return request
}

func (o *Observer) cooldown(b crd.Block, pool *crd.Pool) time.Duration {
	switch {
	case pool == nil && b.Reason == expand.NodeGone:
		return o.Defaults.NodeGoneCooldown
	case pool == nil:
		return o.Defaults.Cooldown
	case b.Reason == expand.NodeGone:
		return pool.NodeGoneCooldown
	}
	return pool.Cooldown
}

func (o *Observer) pausedBecause(node *corev1.Node, pools []*crd.Pool) string {
	switch {
	case o.Paused:
		return "the operator is paused (--paused)"
	case node != nil && node.Annotations[v1alpha1.PausedAnnotation] == "true":
		return "the Node is paused (annotation " + v1alpha1.PausedAnnotation + ")"
	case len(pools) > 0 && pools[0].Paused:
		return "pool " + pools[0].Name + " is paused (spec.paused)"
	}
	return ""
}

// optedOut reports whether the Node says that Cilium does not run on it.
func (o *Observer) optedOut(node *corev1.Node) bool {
	if node.Labels[v1alpha1.OptOutLabel] == "true" {
		return true
	}
	for _, taint := range node.Spec.Taints {
		if o.IgnoreTaints[taint.Key] {
			return true
		}
	}
	return false
}

// Publishable are the addresses of a block of pool that may be published on a node.
func (o *Observer) Publishable(view *ciliumnode.View, pool *crd.Pool, block netip.Prefix) []netip.Addr {
	return o.withoutExcluded(view, block, usable(view, pool, block))
}

// usable are the addresses of a block of pool that may be published on a node. Of
// one for a pool of Cilium's, an agent that has none gives no address to a new pod:
// it would count for the default pool, so that the agent could not restore the pod
// once the block is listed for its own again. Until that agent has reported, one
// that has pools may run, and pods have addresses that nobody has told yet.
func usable(view *ciliumnode.View, pool *crd.Pool, cidr netip.Prefix) []netip.Addr {
	switch {
	case view != nil && view.Whole != nil:
		return view.Usable(cidr)
	case pool.Idle && view != nil && len(view.Used) > 0:
		return nil
	}
	return pool.Usable(cidr)
}

// withoutExcluded are the addresses of a block but for those of nodes and
// Services. Where agents have whole blocks, nothing of one can be kept back.
func (o *Observer) withoutExcluded(view *ciliumnode.View, block netip.Prefix, addrs []netip.Addr) []netip.Addr {
	excluded := exclude.CIDRs(o.Ledger.Excluded(block))
	if len(excluded) == 0 || view != nil && view.Whole != nil {
		return addrs
	}
	return slices.DeleteFunc(addrs, func(addr netip.Addr) bool { return anyContains(excluded, addr) })
}

// wholeOf is what an agent that is told whole blocks has, and asks for, of one
// family.
func wholeOf(view *ciliumnode.View, f ipalloc.Family, blocks []crd.Block) *expand.Whole {
	if view.Whole == nil {
		return nil
	}
	w := &expand.Whole{Heard: view.Whole.Heard(), Requested: view.Whole.Requested[f], Fixed: view.Whole.Fixed, OnDemand: view.Whole.Other}
	for _, p := range view.PodCIDRs {
		if ipalloc.FamilyOf(p.Addr()) != f {
			continue
		}
		w.Told = append(w.Told, p)
		if !slices.ContainsFunc(blocks, func(b crd.Block) bool { return b.CIDR == p }) {
			w.Foreign += view.Whole.Count(p)
		}
	}
	return w
}
