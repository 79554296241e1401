package state

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

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

func (c *Cluster) share(s *Snapshot, f ipalloc.Family, ciliumPool string, served []*crd.Pool, now time.Time) Share {
	share := Share{Family: f, CiliumPool: ciliumPool, Standing: s.Standing}
	share.Pools, share.Policy, share.Standing.Pause = c.policy(s.Node, f, ciliumPool, served)
	if len(share.Pools) > 0 && share.Standing.MayChange() && c.mayAnnounce(s.Node) {
		share.Standing.Pause = c.CiliumPools.lacksFamily(ciliumPool, f)
	}
	share.State = expand.State{
		Node: s.Name, Family: f, MaxPods: MaxPods(s.Node), AgentReady: c.Agents.Ready(s.Name), AgentSettled: s.Settled, Adopting: s.adopting,
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
		share.OfPods = ciliumPool != "" && !c.agentNeeds(s, ciliumPool, now)
	}
	if c.Unscheduled != nil {
		state.Offers = true
		state.Scarce = c.Unscheduled.IsScarce(f, share.Pools)
		state.Expected, state.Recall = c.Unscheduled.Needs(s.Name, ciliumPool, f, RequestedBy(s.Pods, ciliumPool)[f])
	}
	if c.TakenPercent != nil {
		for _, pool := range s.PoolsInService(f) {
			state.PoolTaken = max(state.PoolTaken, c.TakenPercent(pool, f))
		}
	}
	c.addBlocks(s, &share, now)
	return share
}

// agentNeeds reports whether the agent of a node does not start without an address of a Cilium pool, by
// Cilium's settings, and has not started.
func (c *Cluster) agentNeeds(s *Snapshot, ciliumPool string, now time.Time) bool {
	if s.Node == nil {
		return false
	}
	config := c.Cilium.Get()
	byDefault := config.Setting(s.Node.Labels, ciliumconfig.DefaultPoolSetting) == ciliumPool
	return byDefault || config.PreAllocation(s.Node.Labels)[ciliumPool] > 0 && !s.checkRunsWithout(c.Agents, now)
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
		state.Created = c.Ledger.NotInFuture(view.UID, view.Created)
		state.Own = view.InUseUnreported()
		state.Limits = view.Limits
		// An agent that is assigned whole blocks shows by its requests which families it runs.
		state.FamilyDisabled = view.Addresses != nil && view.FamilyDisabled(share.Family) && s.checkRunsWithout(c.Agents, now)
		state.BlockAssignment = c.assignment(s, share, view, mine)
	}
	for _, b := range mine {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == share.Family {
			state.Blocks = append(state.Blocks, c.block(s, share, view, b, now))
		}
	}
	for _, cidr := range s.missingPins {
		if ipalloc.FamilyOf(cidr.Addr()) == share.Family && slices.ContainsFunc(share.Pools, func(p *crd.Pool) bool { return p.Owner == "" && p.AssignsNow(cidr) }) {
			state.Pins++
		}
	}
}

// podsOf returns the pods that count for one family and Cilium pool: pods that request it, and pods
// with an address that shows that it is their pool. No pod requests a family that the agent does not
// use. It leaves out the pods that another CNI plugin serves: their addresses lie in no PodIPPool or block, and the CiliumNode does not name them.
// Pods without an address count once an agent is seen that can assign them one: until then the node
// gets the addresses that an agent needs to start. Pods that request addresses of the scheduler stay.
// elsewhere is the number of addresses of the Cilium pool that the pods left out request. The Cilium pool of
// an owner counts no pod of others without an address.
func (c *Cluster) podsOf(s *Snapshot, f ipalloc.Family, ciliumPool string) (pods []expand.Pod, elsewhere int) {
	view := s.CiliumNode
	uses := ciliumPool == "" || view == nil || view.BlockAssignment == nil || view.BlockAssignment.Uses(f)
	asks := func(p expand.Pod) bool { return uses && s.chose(p, f, ciliumPool) }
	isExcluded := func(p expand.Pod) bool {
		if p.OfOtherPool && !hasFamily(p.IPs, f) {
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
	isOther := func(p expand.Pod) bool { return !asks(p) || isExcluded(p) }
	if ciliumPool == "" && !slices.ContainsFunc(s.Pods, isOther) {
		return s.Pods, 0
	}
	for _, p := range s.Pods {
		p.Requests = requests(&p, ciliumPool)
		p.OfOtherPool = !asks(p)
		if isExcluded(p) {
			elsewhere += int(p.Requests[f])
		} else {
			pods = append(pods, p)
		}
	}
	return pods, elsewhere
}

// chose reports whether a pod asks for a Cilium pool. For that of an owner only its pods do.
func (s *Snapshot) chose(p expand.Pod, f ipalloc.Family, ciliumPool string) bool {
	return s.PoolChoices.Of(p.Name, f).Pool == ciliumPool && (crd.OwnerOfPool(ciliumPool) == "" || s.isOfOwner(p.Name, f, ciliumPool))
}

// requests returns the numbers of addresses of a Cilium pool, by family, that a pod requests.
func requests(p *expand.Pod, ciliumPool string) [2]uint16 {
	if ciliumPool == "" {
		return p.Requests
	}
	return p.PoolRequests[ciliumPool]
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

// poolsFor returns the pools for a node, which may be nil, by Cilium pool, best first.
func (c *Cluster) poolsFor(node *corev1.Node) map[string][]*crd.Pool {
	out := map[string][]*crd.Pool{}
	if node != nil {
		for _, pool := range c.Pools.Match(labels.Set(node.Labels)) {
			out[pool.CiliumPool] = append(out[pool.CiliumPool], pool)
		}
	}
	return out
}

// ciliumPoolsOf returns the Cilium pools to decide on for one family of a node: the default one,
// "", first, then the pools that its CiliumNode lists or requests, that its pods request, that
// unscheduled pods request, if PodIPPools serve them there, and the pools of blocks that it holds. Each has its own blocks and its own demand. As long as the node
// has no CiliumNode, the pools that PodIPPools serve there count too.
func (c *Cluster) ciliumPoolsOf(s *Snapshot, f ipalloc.Family, served map[string][]*crd.Pool) []string {
	if !c.Defaults.CiliumPools {
		return []string{""}
	}
	names := SetOf(append(s.CiliumNode.CiliumPools(), ""))
	if s.CiliumNode == nil {
		for name := range served {
			names[name] = true
		}
	}
	if c.Unscheduled != nil {
		for _, name := range c.Unscheduled.CiliumPools() {
			if len(served[name]) > 0 {
				names[name] = true
			}
		}
	}
	for _, choices := range s.PoolChoices {
		names[choices[f].Pool] = true
	}
	for _, b := range s.Blocks {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == f {
			names[c.CiliumPoolOf(b, s.CiliumNode)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// CiliumPoolOf returns the Cilium pool that a block is for: the pool that it is listed for, because
// its agent knows it under that name, otherwise the pool that its PodIPPool serves. The two differ
// if a PodIPPool was recreated for another Cilium pool.
func (c *Cluster) CiliumPoolOf(b crd.Block, view *ciliumnode.View) string {
	if !c.Defaults.CiliumPools {
		return ""
	}
	listed := view.ListedFor(b.CIDR)
	if pool := c.Pools.Get(b.Pool); pool != nil && listed == "" && (view == nil || !view.ListsForDefaultPool(b.CIDR)) {
		return cmp.Or(b.CiliumPool, pool.CiliumPool)
	}
	return listed
}

// servedFor returns the pools, of those that serve a node, that serve one Cilium pool there, best
// first. The Cilium pool of an owner is served by the pools with an address that is pinned to it.
func (c *Cluster) servedFor(served map[string][]*crd.Pool, ciliumPool string) []*crd.Pool {
	owner := crd.OwnerOfPool(ciliumPool)
	if owner == "" {
		return served[ciliumPool]
	}
	var out []*crd.Pool
	pins := c.Ledger.Pins.Of(owner)
	for _, pools := range served {
		for _, pool := range pools {
			if slices.ContainsFunc(pins, pool.OnGrid) {
				out = append(out, pool.ForCiliumPoolOfOwner(ciliumPool))
			}
		}
	}
	slices.SortFunc(out, crd.ComparePools)
	return out
}

// IsOrphaned reports whether the Cilium pool of a block is unknown: its PodIPPool is gone,
// and it is listed for none. Such a block must not become listed.
func (c *Cluster) IsOrphaned(b crd.Block, view *ciliumnode.View) bool {
	return c.Defaults.CiliumPools && c.Pools.Get(b.Pool) == nil && (view == nil || !slices.Contains(view.ListedInAnyPool(), b.CIDR))
}

// anyFree reports whether one of pools has a free block of a family: of the pool of an owner, one that
// is pinned to it.
func (c *Cluster) anyFree(f ipalloc.Family, pools []*crd.Pool) bool {
	return slices.ContainsFunc(pools, func(p *crd.Pool) bool {
		if p.Owner == "" {
			return c.FreeIn(p.Name, f) > 0
		}
		return slices.ContainsFunc(c.Ledger.Pins.Of(p.Owner), func(cidr netip.Prefix) bool {
			return ipalloc.FamilyOf(cidr.Addr()) == f && p.AssignsNow(cidr) && len(c.Ledger.HeldIn(cidr)) == 0
		})
	})
}

// FreeIn returns the number of blocks of a family that can be claimed from a pool.
func (c *Cluster) FreeIn(pool string, f ipalloc.Family) uint64 {
	if p := c.Pools.Get(pool); p != nil && !p.Paused {
		if cut, ok := p.Cut(f); ok {
			return c.Ledger.Free(cut)
		}
	}
	return 0
}

// split separates the blocks that are for a Cilium pool from those for others.
func (c *Cluster) split(blocks []crd.Block, ciliumPool string, view *ciliumnode.View) (mine, rest []crd.Block) {
	for _, b := range blocks {
		if c.CiliumPoolOf(b, view) == ciliumPool {
			mine = append(mine, b)
		} else {
			rest = append(rest, b)
		}
	}
	return mine, rest
}

// releaseOf returns the release entries that concern a Cilium pool: entries of its own blocks, and
// for the default pool also entries of no block.
func releaseOf(entries map[netip.Addr]expand.ReleaseStatus, ciliumPool string, mine, rest []crd.Block) map[netip.Addr]expand.ReleaseStatus {
	contains := func(blocks []crd.Block, a netip.Addr) bool {
		return slices.ContainsFunc(blocks, func(b crd.Block) bool { return b.CIDR.Contains(a) })
	}
	out := maps.Clone(entries)
	maps.DeleteFunc(out, func(a netip.Addr, _ expand.ReleaseStatus) bool {
		return !contains(mine, a) && (ciliumPool != "" || contains(rest, a))
	})
	return out
}

func hasFamily(ips []netip.Addr, f ipalloc.Family) bool {
	return slices.ContainsFunc(ips, func(a netip.Addr) bool { return ipalloc.FamilyOf(a) == f })
}

// assignment returns the part of a share that its agent is assigned as whole blocks, and requests; nil: it
// is assigned single addresses.
func (c *Cluster) assignment(s *Snapshot, share *Share, view *ciliumnode.View, blocks []crd.Block) *expand.BlockAssignment {
	agent := view.BlockAssignment
	if agent == nil {
		return nil
	}
	w := &expand.BlockAssignment{
		Reported:    agent.Reported(),
		Requested:   agent.Requested[share.Family],
		SingleBlock: agent.SingleBlock,
		// A node agent that does not run the family gives pods no address of it, of any Cilium pool.
		NoPreallocation: agent.PodsOnly && (!agent.NodeAgent || agent.Uses(share.Family)),
		HasEntry:        agent.HasEntry,
		NodeAgent:       agent.NodeAgent,
		OfOwner:         crd.OwnerOfPool(share.CiliumPool) != "",
	}
	isOfFamily := func(b crd.Block) bool { return ipalloc.FamilyOf(b.CIDR.Addr()) == share.Family }
	// The agent of a node that the owner's pod has left requests its address for some more minutes.
	if w.OfOwner && !slices.ContainsFunc(blocks, isOfFamily) && !s.hasPodOfOwner(share.Family, share.CiliumPool) {
		w.Requested = 0
	}
	if s.Node != nil {
		w.PreAllocation = c.Cilium.Get().PreAllocation(s.Node.Labels)[cmp.Or(share.CiliumPool, crd.DefaultCiliumPool)]
	}
	for _, p := range view.PodCIDRs {
		if ipalloc.FamilyOf(p.Addr()) != share.Family {
			continue
		}
		w.Assigned = append(w.Assigned, p)
		isBlock := slices.ContainsFunc(blocks, func(b crd.Block) bool { return b.CIDR == p })
		isClosed := w.NodeAgent && slices.Contains(s.CiliumNode.Parked(), p)
		if !isBlock && !isClosed {
			w.Foreign += agent.Count(p)
		}
	}
	if c.Defaults.CiliumPools && !w.NodeAgent {
		c.setMayPark(s, share, w)
	}
	return w
}

// setMayPark sets what an assignment says of its agent, and of the blocks that may be parked or closed.
func (c *Cluster) setMayPark(s *Snapshot, share *Share, w *expand.BlockAssignment) {
	w.Agent = c.Agents.Container(s.Name)
	w.MayPark = c.ParkBlocks && len(s.CiliumNode.Parked()) == 0
	w.Regains = slices.ContainsFunc(s.Blocks, func(b crd.Block) bool { return b.Closed.Regained(w.Agent) })
	w.MayCompact = c.CompactBlocks && s.Node != nil && !c.mayAnnounce(s.Node)
	w.MayHaveClosed = c.ParkBlocks && (s.recreated || c.Agents.RanBefore(s.Name))
	drains := func(b crd.Block) bool { return b.Phase == ipalloc.Draining }
	w.PoolHasFree = w.MayPark && (w.MayHaveClosed || slices.ContainsFunc(s.Blocks, drains)) && c.anyFree(share.Family, share.Pools)
}
