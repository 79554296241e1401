package state

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
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

// Share is one family of a node, for one Cilium pool.
type Share struct {
	Family ipalloc.Family
	// CiliumPool is the Cilium pool; "": the default one.
	CiliumPool string
	// OfPods: only pods that ask for the Cilium pool need it. The agent, and other pods, do not.
	OfPods   bool
	Pools    []*crd.Pool // to claim from, best first; the first rules the node
	Policy   expand.Policy
	Standing Standing
	State    expand.State
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
	s.adopting = s.isUnreported() && slices.ContainsFunc(s.Blocks, func(b crd.Block) bool {
		return b.AdoptedFrom != "" && b.Phase == ipalloc.InService
	})
	if c.Defaults.CiliumPools {
		s.PoolChoices = c.Pods.PoolChoices(name, c.CiliumPools.Picking())
	}
	s.Settled, s.Settles = c.Agents.Settled(name, now)
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

// isUnreported reports whether the agent has not reported yet that it runs in the operator's mode.
func (s *Snapshot) isUnreported() bool {
	return s.CiliumNode != nil && s.CiliumNode.Unreported() && !s.restored
}

// isOfOtherIPAM reports whether another IPAM serves the node's pods.
func (s *Snapshot) isOfOtherIPAM() bool {
	return s.isUnreported() && len(s.CiliumNode.Unadopted(crd.CIDRs(s.Blocks))) > 0
}

func single(a netip.Addr) []netip.Prefix { return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())} }

// setOtherFamilyFull determines for each share whether pods wait for an address of the
// agent's other family: no Cilium pool has a free one, and no PodIPPool has a block left
// for one.
func (c *Cluster) setOtherFamilyFull(s *Snapshot) {
	if !c.ParkBlocks || s.CiliumNode == nil || s.CiliumNode.BlockAssignment == nil {
		return
	}
	demand := s.CiliumNode.BlockAssignment
	for i := range s.Shares {
		otherFamily := 1 - s.Shares[i].Family
		hasRoom := func(share Share) bool {
			return share.Family == otherFamily && (share.State.HasFree() || c.anyFree(otherFamily, share.Pools))
		}
		s.Shares[i].State.OtherFamilyFull = demand.Reported() && demand.Uses(otherFamily) && !slices.ContainsFunc(s.Shares, hasRoom)
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

func (c *Cluster) share(s *Snapshot, f ipalloc.Family, ciliumPool string, served []*crd.Pool, now time.Time) Share {
	share := Share{Family: f, CiliumPool: ciliumPool, Standing: s.Standing}
	share.Pools, share.Policy, share.Standing.Hold = c.policy(s.Node, f, ciliumPool, served)
	if len(share.Pools) > 0 && share.Standing.MayChange() && c.mayAnnounce(s.Node) {
		share.Standing.Hold = c.CiliumPools.lacksFamily(ciliumPool, f)
	}
	share.State = expand.State{
		Node: s.Name, Family: f, MaxPods: MaxPods(s.Node), AgentSettled: s.Settled, Adopting: s.adopting,
		Cordoned: s.Node != nil && s.Node.Spec.Unschedulable,
		Ended:    s.Ended,
	}
	state := &share.State
	state.Pods, state.OtherRequests = c.podsOf(s, f, ciliumPool)
	if s.otherMode != "" {
		state.ReclaimDelay = modeDelay(now)
	} else if len(share.Pools) > 0 {
		state.ReclaimDelay = share.Pools[0].Maintenance.Delay(now)
	}
	if c.Defaults.CiliumPools {
		c.setMayPark(s, &share)
		share.OfPods = ciliumPool != "" && !c.agentNeeds(s, ciliumPool, now)
	}
	if c.Unscheduled != nil {
		state.Offers = true
		state.Scarce = c.Unscheduled.IsScarce(f, share.Pools)
		state.Expected, state.Recall = c.Unscheduled.Needs(s.Name, ciliumPool, f, RequestedBy(s.Pods, ciliumPool)[f])
	}
	if c.Taken != nil {
		for _, pool := range s.PoolsInService(f) {
			state.PoolTaken = max(state.PoolTaken, c.Taken(pool, f))
		}
	}
	c.addBlocks(s, &share, now)
	return share
}

// setMayPark sets what a share says of its agent, and of the blocks that may be parked or closed.
func (c *Cluster) setMayPark(s *Snapshot, share *Share) {
	state := &share.State
	state.Agent = c.Agents.Container(s.Name)
	state.MayPark = c.ParkBlocks && len(s.CiliumNode.Parked()) == 0
	state.Regains = slices.ContainsFunc(s.Blocks, func(b crd.Block) bool { return b.Closed.Regained(state.Agent) })
	state.MayCompact = c.CompactBlocks && s.Node != nil && !c.mayAnnounce(s.Node)
	state.MayHaveClosed = c.ParkBlocks && (s.recreated || c.Agents.RanBefore(s.Name))
	drains := func(b crd.Block) bool { return b.Phase == ipalloc.Draining }
	state.Replaceable = state.MayPark && (state.MayHaveClosed || slices.ContainsFunc(s.Blocks, drains)) && c.anyFree(share.Family, share.Pools)
}

// agentNeeds reports whether the agent of a node does not start without an address of a Cilium pool, by
// Cilium's settings, and has not started.
func (c *Cluster) agentNeeds(s *Snapshot, ciliumPool string, now time.Time) bool {
	if s.Node == nil {
		return false
	}
	config := c.Cilium.Get()
	byDefault := config.Setting(s.Node.Labels, ciliumconfig.DefaultPoolSetting) == ciliumPool
	return byDefault || config.PreAllocation(s.Node.Labels)[ciliumPool] > 0 && !s.runsWithout(c.Agents, now)
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

// addBlocks adds to a share its part of the CiliumNode, and its blocks.
func (c *Cluster) addBlocks(s *Snapshot, share *Share, now time.Time) {
	mine, rest := c.split(s.Blocks, share.CiliumPool, s.CiliumNode)
	state := &share.State
	view := s.CiliumNode.Of(share.CiliumPool)
	if view != nil {
		state.Pool = view.Published()
		state.Used = view.Used
		state.Release = releaseOf(view.Release, share.CiliumPool, mine, rest)
		state.Created = c.Ledger.Past(view.UID, view.Created)
		state.Own = view.InUse()
		state.Limits = view.Limits
		// An agent that is assigned whole blocks shows by its requests which families it runs.
		state.FamilyDisabled = view.Addresses != nil && view.FamilyDisabled(share.Family) && s.runsWithout(c.Agents, now)
		state.BlockAssignment = assignmentOf(view, share.Family, mine)
		c.setPreAllocation(s, share)
	}
	for _, b := range mine {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == share.Family {
			state.Blocks = append(state.Blocks, c.block(s, share, view, b, now))
		}
	}
	// The agent of a node that the pod has left requests its address for some more minutes.
	if pod := crd.PodOfPool(share.CiliumPool); pod != "" && len(state.Blocks) == 0 && state.BlockAssignment != nil && !s.hasPod(pod) {
		state.BlockAssignment.Requested = 0
	}
	for _, cidr := range s.missingPins {
		if ipalloc.FamilyOf(cidr.Addr()) == share.Family && slices.ContainsFunc(share.Pools, func(p *crd.Pool) bool { return p.Pod == "" && p.MayGive(cidr) }) {
			state.Pins++
		}
	}
}

// setPreAllocation adds to a share the addresses that its agent keeps in reserve.
func (c *Cluster) setPreAllocation(s *Snapshot, share *Share) {
	if s.Node == nil || share.State.BlockAssignment == nil {
		return
	}
	reserves := c.Cilium.Get().PreAllocation(s.Node.Labels)
	share.State.BlockAssignment.PreAllocation = reserves[cmp.Or(share.CiliumPool, crd.DefaultCiliumPool)]
}

func (s *Snapshot) hasPod(name string) bool {
	return slices.ContainsFunc(s.Pods, func(p expand.Pod) bool { return p.Name == name })
}

// podsOf returns the pods that count for one family and Cilium pool: pods that request it, and pods
// with an address that shows that it is their pool. No pod requests a family that the agent does not
// use. It leaves out the pods that another CNI
// plugin serves: their addresses lie in no PodIPPool or block, and the CiliumNode does not name them.
// Pods without an address count once an agent is seen that can assign them one: until then the node
// gets the addresses that an agent needs to start. Pods that request addresses of the scheduler stay.
// others is the number of addresses of the Cilium pool that the pods left out request. The Cilium pool of
// a single pod counts no other one without an address.
func (c *Cluster) podsOf(s *Snapshot, f ipalloc.Family, ciliumPool string) (pods []expand.Pod, elsewhere int) {
	view := s.CiliumNode
	uses := ciliumPool == "" || view == nil || view.BlockAssignment == nil || view.BlockAssignment.Uses(f)
	only := crd.PodOfPool(ciliumPool)
	isExcluded := func(p expand.Pod) bool {
		if (!uses || s.PoolChoices.Of(p.Name, f).Pool != ciliumPool || only != "" && p.Name != only) && !hasFamily(p.IPs, f) {
			return true
		}
		if p.Requests[f] > 0 {
			return false
		}
		if len(p.IPs) == 0 {
			return !s.AgentSeen
		}
		return !slices.ContainsFunc(p.IPs, func(a netip.Addr) bool { return c.isKnown(s, a) })
	}
	if ciliumPool == "" && !slices.ContainsFunc(s.Pods, isExcluded) {
		return s.Pods, 0
	}
	for _, p := range s.Pods {
		p.Requests = requests(&p, ciliumPool)
		if isExcluded(p) {
			elsewhere += int(p.Requests[f])
		} else {
			pods = append(pods, p)
		}
	}
	return pods, elsewhere
}

// requests returns the numbers of addresses of a Cilium pool, by family, that a pod requests.
func requests(p *expand.Pod, ciliumPool string) [2]uint16 {
	if ciliumPool == "" {
		return p.Requests
	}
	return p.PoolRequests[ciliumPool]
}

// isKnown reports whether an address lies in a block or a PodIPPool, or the CiliumNode names it.
func (c *Cluster) isKnown(s *Snapshot, a netip.Addr) bool {
	if slices.ContainsFunc(s.Blocks, func(b crd.Block) bool { return b.CIDR.Contains(a) }) {
		return true
	}
	if view := s.CiliumNode; view != nil {
		_, used := view.Used[a]
		if used || view.Publishes(a) || ContainsAddr(view.PodCIDRs, a) || ContainsAddr(view.Listed(), a) {
			return true
		}
	}
	return len(c.Pools.Touching(single(a))) > 0 || len(c.Ledger.HeldElsewhere(s.Name, single(a))) > 0
}

// RequestedBy returns the numbers of addresses of a Cilium pool, by family, that pods request.
func RequestedBy(pods []expand.Pod, ciliumPool string) (n [2]int) {
	for i := range pods {
		for f, requested := range requests(&pods[i], ciliumPool) {
			n[f] += int(requested)
		}
	}
	return n
}

// runsWithout reports whether the agent runs without a family that its last report lacks: it
// has not restarted since, to wait for an address of it.
func (s *Snapshot) runsWithout(agents *Agents, now time.Time) bool {
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

// Ruling returns the name of the pool with the policy that applies, or "".
func (s *Share) Ruling() string {
	if len(s.Pools) == 0 {
		return ""
	}
	return s.Pools[0].Name
}

// ShareKey identifies a share of a node.
type ShareKey struct {
	Node, CiliumPool string
	Family           ipalloc.Family
}

// Key identifies the share on a node.
func (s *Share) Key(node string) ShareKey { return ShareKey{node, s.CiliumPool, s.Family} }

// Replaces reports whether a claim replaces blocks of another pool.
func (s *Share) Replaces() bool {
	return slices.ContainsFunc(s.State.Blocks, func(b expand.Block) bool {
		return b.Phase == ipalloc.InService && b.Request == expand.PoolChanged
	})
}
