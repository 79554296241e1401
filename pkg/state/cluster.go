package state

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Cluster is everything known about the cluster, plus the operator settings that determine how to
// read it. Its methods derive the input of expand.Decide, however the objects were read, and do not
// change it.
type Cluster struct {
	Ledger *Ledger
	Pools  *Pools
	Pods   *Pods
	Agents *Agents
	// Waiting are the pods without an address, whole, by node. A running operator has none: its
	// watch leaves out their tolerations, and it reads them when it needs them.
	Waiting map[string][]corev1.Pod
	// CiliumPools select pods for Cilium pools by label; nil: no labels do.
	CiliumPools *CiliumPools
	// Unscheduled are the pods that no node has addresses for (pkg/scheduling); nil: Nodes offer no
	// addresses to the scheduler.
	Unscheduled Unscheduled
	// Awaiting tracks nodes short of addresses; nil if they are never woken.
	Awaiting *Awaiting
	// Taken returns the percentage of a pool's blocks of a family that are taken; nil: not
	// known.
	Taken func(pool string, f ipalloc.Family) int
	// Cilium is how agents are configured. They must run in Mode, unless AnyMode is set.
	Cilium  *ciliumconfig.Latest
	Mode    ciliumnode.Mode
	AnyMode bool
	// Defaults apply where a pool sets no value, or if there is no pool.
	Defaults crd.Defaults
	// ParkBlocks: draining blocks are parked where agents are assigned whole blocks.
	ParkBlocks bool
	// Paused stops all writes about nodes and blocks.
	Paused bool
	// IgnoreTaints are keys of taints that mark Nodes without Cilium.
	IgnoreTaints map[string]bool
	// StartupTaints are keys of taints of Nodes with labels that are not final.
	StartupTaints map[string]bool
	// ShortageTaint is the key of the taint for Nodes that lack addresses for their pods; "": none.
	ShortageTaint string
}

// Unscheduled describes a node's share for pods that no node has addresses for, and for nodes
// without a block.
type Unscheduled interface {
	// Needs returns the number of addresses of a family that the node should have room for, if its
	// bound pods request that many now, and the blocks that it should return.
	Needs(node string, f ipalloc.Family, requested int) (expected int, recall []netip.Prefix)
	// IsScarce reports whether they wait for blocks of every one of these pools.
	IsScarce(f ipalloc.Family, pools []*crd.Pool) bool
	// SetWithoutBlock records whether a node waits for the first block of a family.
	SetWithoutBlock(node string, waits bool)
}

// Policy returns the rules for one family of a node, which may be nil, for one Cilium pool: the
// pools to claim from, best first, the policy, and the reason against any change ("" if there is
// none).
func (c *Cluster) Policy(node *corev1.Node, f ipalloc.Family, ciliumPool string) (pools []*crd.Pool, policy expand.Policy, paused string) {
	return c.policy(node, f, ciliumPool, c.poolsFor(node)[ciliumPool])
}

// policy is Policy with the pools for the node that serve the Cilium pool.
func (c *Cluster) policy(node *corev1.Node, f ipalloc.Family, ciliumPool string, served []*crd.Pool) (pools []*crd.Pool, policy expand.Policy, paused string) {
	if node != nil && !c.OptedOut(node) {
		pools = crd.ForFamily(served, f, ciliumPool)
	}
	if len(pools) > 0 {
		policy = pools[0].Policy
	} else {
		policy = c.Defaults.Policy
		policy.ReclaimDisabled = true // no pool defines the node's needs
	}
	return pools, policy, c.PausedBecause(node, pools)
}

// State completes the state of one family of a node for one Cilium pool, from the node's
// CiliumNode, which may be nil, and its blocks of any family and pool.
func (c *Cluster) State(s expand.State, ciliumPool string, view *ciliumnode.View, blocks []crd.Block) expand.State {
	mine, others := c.split(blocks, ciliumPool, view)
	share := view.Of(ciliumPool)
	for _, b := range mine {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == s.Family {
			state := c.blockState(b, share)
			state.Orphaned = c.IsOrphaned(b, view)
			s.Blocks = append(s.Blocks, state)
		}
	}
	if share != nil {
		s.Pool, s.Used, s.Release = share.Pool, share.Used, releaseOf(share.Release, ciliumPool, mine, others)
		s.Created = share.Created
		s.Own, s.Limits = share.InUse(), share.Limits
		s.NotRun = share.BlockDemand == nil && share.NotRun(s.Family) // otherwise its requests show that
		s.BlockDemand = wholeOf(share, s.Family, mine)
		c.leaveNamed(&s)
	}
	return s
}

// leaveNamed takes the addresses out of a block that another node's CiliumNode has come to name
// since it was claimed, if the block is unused here: they are not published then, so the node must
// neither count on them nor keep a block without others. A block to be listed whole loses all.
func (c *Cluster) leaveNamed(s *expand.State) {
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.Listed || s.Uses(b.CIDR) {
			continue
		}
		switch named := c.Ledger.NamedElsewhere(s.Node, b.CIDR); {
		case len(named) == 0:
		case s.BlockDemand != nil:
			b.Usable = nil
		default:
			b.Usable = slices.DeleteFunc(slices.Clone(b.Usable), func(a netip.Addr) bool { return ContainsAddr(named, a) })
		}
	}
}

// blockState returns a block as expand sees it.
func (c *Cluster) blockState(b crd.Block, view *ciliumnode.View) expand.Block {
	s := expand.Block{CIDR: b.CIDR, Created: b.Created, Phase: b.Phase, Reason: b.Reason}
	s.Listed = view != nil && view.Lists(b.CIDR)
	s.Leftover = view != nil && view.Leftover(b.CIDR)
	s.Parked, s.Closed = s.Listed && slices.Contains(view.Parked(), b.CIDR), b.Closed
	pool := c.Pools.Get(b.Pool)
	switch {
	case b.CIDR.Addr().BitLen()-b.CIDR.Bits() > ipalloc.MaxHostBits:
		// Too large to list. The block controller reports it.
	case pool != nil && !pool.Frozen():
		s.Usable = c.Publishable(view, pool, b.CIDR)
	case view != nil:
		s.Usable = c.withoutExcluded(view, b.CIDR, view.PublishedIn(b.CIDR)) // without a valid pool, keep the published addresses
	}
	s.Request = requestOn(b, pool)
	if len(c.Ledger.Overlaps(b.CIDR)) > 0 {
		// Published addresses stay, and no others are added.
		s.Conflict, s.Usable = !s.Listed, nil
		if s.Listed {
			s.Usable = view.PublishedIn(b.CIDR)
		}
	}
	if b.Phase == ipalloc.CoolingDown {
		s.CooldownUntil = b.Since.Add(c.Cooldown(b))
		if view != nil && !b.Created.After(view.Created) {
			// The agent of a Node that came back, or of a CiliumNode that was created again, may
			// still need to report that it uses a block of before.
			if reported := view.Created.Add(c.Defaults.Policy.AckTimeout); reported.After(s.CooldownUntil) {
				s.CooldownUntil = reported
			}
		}
	}
	return s
}

// requestOn returns why a block must be returned, if so. pool may be nil.
func requestOn(b crd.Block, pool *crd.Pool) (request expand.Reason) {
	switch {
	case b.Deleting:
		request = expand.Deleted
	case pool == nil, pool.Deleting:
		request = expand.PoolDeleted
	case pool.Frozen() && b.Phase == ipalloc.Draining && b.Reason == expand.CIDRDraining:
		request = expand.CIDRDraining // a drain that has begun continues: no change cancels it
	case pool.Drains(b.CIDR):
		request = expand.CIDRDraining
	}
	return request
}

// Cooldown returns the time that a block cools down: its pool's cooldown or the default one, and
// longer if its node is gone.
func (c *Cluster) Cooldown(b crd.Block) time.Duration {
	pool := c.Pools.Get(b.Pool)
	switch {
	case pool == nil && b.Reason == expand.NodeGone:
		return c.Defaults.NodeGoneCooldown
	case pool == nil:
		return c.Defaults.Cooldown
	}
	return cooldownIn(pool, b)
}

// PausedBecause returns why nothing may change on a node that pools serve, the ruling one first;
// "": it may.
func (c *Cluster) PausedBecause(node *corev1.Node, pools []*crd.Pool) string {
	switch {
	case c.Paused:
		return "the operator is paused (--paused)"
	case node != nil && node.Annotations[v1alpha1.PausedAnnotation] == "true":
		return "the Node is paused (annotation " + v1alpha1.PausedAnnotation + ")"
	case len(pools) > 0 && pools[0].Paused:
		return "pool " + pools[0].Name + " is paused (spec.paused)"
	}
	return ""
}

// OptedOut reports whether the Node is labeled or tainted as running without Cilium, or has
// another operating system than Cilium's DaemonSet selects.
func (c *Cluster) OptedOut(node *corev1.Node) bool {
	if os := node.Labels[corev1.LabelOSStable]; node.Labels[v1alpha1.OptOutLabel] == "true" || os != "" && os != "linux" {
		return true
	}
	for _, taint := range node.Spec.Taints {
		if c.IgnoreTaints[taint.Key] {
			return true
		}
	}
	return false
}

// Publishable returns the addresses of a block of pool that may be published on a node.
func (c *Cluster) Publishable(view *ciliumnode.View, pool *crd.Pool, block netip.Prefix) []netip.Addr {
	return c.withoutExcluded(view, block, usable(view, pool, block))
}

// usable returns the addresses of a block of pool that may be published on a node. An agent
// in a mode without pools must not assign addresses of a Cilium pool's block to new pods:
// they would count for the default pool, and the agent could not restore the pod once the
// block is listed for its own pool again. Until that agent has reported, an agent in a mode
// with pools may still be running, with pod addresses that are not reported yet.
func usable(view *ciliumnode.View, pool *crd.Pool, cidr netip.Prefix) []netip.Addr {
	switch {
	case view != nil && view.BlockDemand != nil:
		return view.Usable(cidr)
	case pool.Inactive && view != nil && len(view.Used) > 0:
		return nil
	}
	return pool.Usable(cidr)
}

// withoutExcluded returns the addresses of a block except addresses of nodes and Services. In modes
// where agents are assigned whole blocks, no address can be withheld.
func (c *Cluster) withoutExcluded(view *ciliumnode.View, block netip.Prefix, addrs []netip.Addr) []netip.Addr {
	excluded := exclude.CIDRs(slices.DeleteFunc(c.Ledger.Excluded(block), exclude.Range.Offered))
	if len(excluded) == 0 || view != nil && view.BlockDemand != nil {
		return addrs
	}
	return slices.DeleteFunc(addrs, func(addr netip.Addr) bool { return ContainsAddr(excluded, addr) })
}

// wholeOf returns the blocks and requests of an agent that is assigned whole blocks, for one
// family.
func wholeOf(view *ciliumnode.View, f ipalloc.Family, blocks []crd.Block) *expand.BlockDemand {
	if view.BlockDemand == nil {
		return nil
	}
	w := &expand.BlockDemand{Reported: view.BlockDemand.Reported(), Requested: view.BlockDemand.Requested[f], Fixed: view.BlockDemand.Fixed, OnDemand: view.BlockDemand.Other}
	for _, p := range view.PodCIDRs {
		if ipalloc.FamilyOf(p.Addr()) != f {
			continue
		}
		w.Assigned = append(w.Assigned, p)
		if !slices.ContainsFunc(blocks, func(b crd.Block) bool { return b.CIDR == p }) {
			w.Foreign += view.BlockDemand.Count(p)
		}
	}
	return w
}

// Unselected reports whether Cilium runs on a Node, which may be nil, but no PodIPPool
// selects it: the Node gets no block.
func (c *Cluster) Unselected(node *corev1.Node) bool {
	return node != nil && !c.OptedOut(node) && len(c.Pools.Match(labels.Set(node.Labels))) == 0
}

// SetOf returns keys as a set.
func SetOf(keys []string) map[string]bool {
	set := make(map[string]bool, len(keys))
	for _, k := range keys {
		set[k] = true
	}
	return set
}

// ContainsAddr reports whether one of the prefixes contains the address.
func ContainsAddr(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
