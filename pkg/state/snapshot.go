package state

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Snapshot is the state of one node at one moment: the input of its decisions.
type Snapshot struct {
	Name       string
	Node       *corev1.Node     // nil: there is no such Node
	CiliumNode *ciliumnode.View // nil: there is no such CiliumNode
	// Blocks are the blocks that the node holds, of any family and pool; Claims is the number of
	// blocks of each family that are reserved for it and do not exist yet.
	Blocks []crd.Block
	Claims [2]int
	Pods   []expand.Pod
	// Ended are the pods that have just left the node; the first counts until EndedUntil.
	Ended      []string
	EndedUntil time.Time
	// PoolChoices are the Cilium pools that its pods are for.
	PoolChoices PoolChoices
	// Settled: the agent runs steadily. Settles is when it will have settled, or when it
	// will be known which families it runs; zero: unknown.
	Settled bool
	Settles time.Time
	// AgentSeen: an agent runs on the node, or has written its CiliumNode.
	AgentSeen bool
	// Standing is whether the operator serves it.
	Standing Standing
	// Unserved is the needs of its agent and pods that no PodIPPool serves.
	Unserved []Unserved
	// Shares are the units of decision: one per family and Cilium pool that concerns the
	// node.
	Shares []Share

	// deleted is the last state of its deleted CiliumNode, or nil; restored and recreated are as in
	// seenNode.
	deleted             *ciliumnode.View
	restored, recreated bool
	// adopting: its blocks are adopted, and its agent has not reported yet that it runs in the new mode.
	adopting bool
	// otherMode is the IPAM mode that its agent starts in next, if it would not find the node's
	// blocks there; "": it would.
	otherMode string
	// overlapped are the blocks that share addresses with others.
	overlapped []netip.Prefix
	// pins are the blocks that are pinned to the node, and missingPins those of them that it can claim.
	pins, missingPins []netip.Prefix
}

// Snapshot collects the known state of a node at now. node is nil if the Node does not exist. It
// has no side effect: two calls without events in between return the same.
//
// A running operator adds its own knowledge: turns to drain, and blocks of a node with labels that
// came late.
func (c *Cluster) Snapshot(name string, node *corev1.Node, now time.Time) *Snapshot {
	return c.snapshot(name, node, false, now)
}

// SnapshotWithFinalLabels is Snapshot of a node that does not wait for its labels: see EndsWait.
func (c *Cluster) SnapshotWithFinalLabels(name string, node *corev1.Node, now time.Time) *Snapshot {
	return c.snapshot(name, node, true, now)
}

func (c *Cluster) snapshot(name string, node *corev1.Node, labelsFinal bool, now time.Time) *Snapshot {
	s := c.Ledger.Facts(name)
	s.Node = node
	s.Pods = c.Pods.On(name)
	s.otherMode = c.otherMode(node, s.Blocks, s.CiliumNode)
	s.CiliumNode = s.CiliumNode.WithConfigured(func(a netip.Addr) bool { return len(c.Pools.Touching(single(a))) > 0 })
	s.Ended, s.EndedUntil = c.Pods.Ended(name, now)
	s.adopting = s.awaitsNewMode() && slices.ContainsFunc(s.Blocks, func(b crd.Block) bool {
		return b.AdoptedFrom != "" && b.Phase == ipalloc.InService
	})
	if c.Defaults.CiliumPools {
		s.PoolChoices = c.Pods.PoolChoices(name, c.CiliumPools.Picking())
	}
	s.Settled, s.Settles = c.Agents.Settled(name, now)
	if s.CiliumNode.HasNodeAgent() {
		s.Settled = s.CiliumNode.BlockAssignment.Reported() // its report is from the node's disk
		s.Settles = time.Time{}
	}
	s.AgentSeen = c.Agents.Runs(name) || s.CiliumNode.HasAgent()
	served := c.poolsFor(node)
	s.Standing = c.standing(s, served, labelsFinal, now)
	for _, f := range ipalloc.Families() {
		for _, ciliumPool := range c.ciliumPoolsOf(s, f, served) {
			share := c.share(s, f, ciliumPool, c.servedFor(served, ciliumPool), now)
			if len(share.Pools)+len(share.State.Blocks) > 0 || hasEntry(&share.State) {
				s.Shares = append(s.Shares, share)
			}
		}
	}
	c.setOtherFamilyFull(s)
	s.Unserved = c.unserved(s, served, now)
	return s
}

// IsNew reports whether the node has no block, and its CiliumNode assigns nothing and reports nothing.
func (s *Snapshot) IsNew() bool {
	cn := s.CiliumNode
	return len(s.Blocks) == 0 && cn != nil && cn.AssignsNone() && len(cn.CIDRsOfAnyIPAM())+len(cn.Used)+len(cn.Release) == 0
}

// AwaitsNodeAgent reports whether the node agent of a running node has never reported.
func (s *Snapshot) AwaitsNodeAgent() bool {
	return s.Node != nil && s.AgentSeen && s.CiliumNode.HasNodeAgent() && !s.CiliumNode.BlockAssignment.Reported()
}

// awaitsNewMode reports whether the agent has not reported yet that it runs in the operator's mode.
func (s *Snapshot) awaitsNewMode() bool {
	return s.CiliumNode != nil && s.CiliumNode.Unreported() && !s.restored
}

// isOfOtherIPAM reports whether another IPAM serves the node's pods.
func (s *Snapshot) isOfOtherIPAM() bool {
	return s.awaitsNewMode() && len(s.CiliumNode.Unadopted(crd.CIDRs(s.Blocks))) > 0
}

func single(a netip.Addr) []netip.Prefix { return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())} }

// setOtherFamilyFull determines for each share whether pods wait for an address of the
// agent's other family: no Cilium pool has a free one, and no PodIPPool has a block left
// for one.
func (c *Cluster) setOtherFamilyFull(s *Snapshot) {
	if !c.ParkBlocks || s.CiliumNode == nil || s.CiliumNode.BlockAssignment == nil {
		return
	}
	assignment := s.CiliumNode.BlockAssignment
	for i := range s.Shares {
		otherFamily := 1 - s.Shares[i].Family
		hasRoom := func(share Share) bool {
			return share.Family == otherFamily && (share.State.HasFree() || c.anyFree(otherFamily, share.Pools))
		}
		s.Shares[i].State.BlockAssignment.OtherFamilyFull = assignment.Reported() && assignment.Uses(otherFamily) && !slices.ContainsFunc(s.Shares, hasRoom)
	}
}

// hasEntry reports whether there is a release entry of the family. The entry that fenced a
// family's last block outlives that block.
func hasEntry(s *expand.State) bool {
	for a := range s.Release {
		if ipalloc.FamilyOf(a) == s.Family {
			return true
		}
	}
	return false
}

// mayAnnounce reports whether the agent of a node may announce Cilium pools by BGP, as far as its settings are
// known.
func (c *Cluster) mayAnnounce(node *corev1.Node) bool {
	if !c.Defaults.CiliumPools || node == nil {
		return false
	}
	cilium := c.Cilium.Get()
	return cilium == nil || !cilium.Known || cilium.Setting(node.Labels, "enable-bgp-control-plane") == "true"
}

// isOfOwner reports whether a pod is of the owner that a Cilium pool is for: other pods can name the pool, too.
func (s *Snapshot) isOfOwner(pod string, f ipalloc.Family, ciliumPool string) bool {
	choice := s.PoolChoices.Of(pod, f)
	return pod == crd.OwnerOfPool(ciliumPool) || choice.By == podSelector && choice.Pool == ciliumPool
}

// hasPodOfOwner reports whether a pod of the owner that a Cilium pool is for is on the node.
func (s *Snapshot) hasPodOfOwner(f ipalloc.Family, ciliumPool string) bool {
	return slices.ContainsFunc(s.Pods, func(p expand.Pod) bool { return s.isOfOwner(p.Name, f, ciliumPool) })
}

// isKnown reports whether an address lies in a block or a PodIPPool, or the CiliumNode names it.
func (c *Cluster) isKnown(s *Snapshot, a netip.Addr) bool {
	if slices.ContainsFunc(s.Blocks, func(b crd.Block) bool { return b.CIDR.Contains(a) }) {
		return true
	}
	if view := s.CiliumNode; view != nil {
		_, used := view.Used[a]
		if used || view.Publishes(a) || ContainsAddr(view.PodCIDRs, a) || ContainsAddr(view.ListedInAnyPool(), a) {
			return true
		}
	}
	return len(c.Pools.Touching(single(a))) > 0 || len(c.Ledger.HeldElsewhere(s.Name, single(a))) > 0
}

// checkRunsWithout reports whether the agent runs without a family that its last report lacks: it
// has not restarted since, to wait for an address of it. If the answer only takes time, it sets Settles to then, at
// the latest.
func (s *Snapshot) checkRunsWithout(agents *Agents, now time.Time) bool {
	stuck, end := agents.MayWaitForFamily(s.Name, now)
	if !end.IsZero() && (s.Settles.IsZero() || end.Before(s.Settles)) {
		s.Settles = end
	}
	return !stuck
}

// HasShare reports whether a family concerns the node.
func (s *Snapshot) HasShare(f ipalloc.Family) bool {
	return slices.ContainsFunc(s.Shares, func(share Share) bool { return share.Family == f })
}

// PoolsInService returns the pools with a block of a family that is in service on the node.
func (s *Snapshot) PoolsInService(f ipalloc.Family) []string {
	var pools []string
	for _, b := range s.Blocks {
		if b.Phase == ipalloc.InService && ipalloc.FamilyOf(b.CIDR.Addr()) == f && !slices.Contains(pools, b.Pool) {
			pools = append(pools, b.Pool)
		}
	}
	return pools
}
