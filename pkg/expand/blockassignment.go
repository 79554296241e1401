package expand

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// BlockAssignment is the holdings and requests of an agent that is assigned whole blocks instead of
// addresses (Cilium v1.20.1, pkg/ipam/multipool_manager.go). It allocates from every assigned
// block, and removes a block from the list itself once no address of it is in use and the others
// cover its request. So there is no handshake, and a listed block serves whether it is planned to
// leave or not. The agent's request is final: it would return any surplus at once.
type BlockAssignment struct {
	// Assigned are the CIDRs assigned to the agent. CIDRs that are not blocks are foreign.
	Assigned []netip.Prefix
	// HasEntry says that the CiliumNode has an entry of the Cilium pool, with or without CIDRs.
	HasEntry bool
	// Foreign is the number of addresses in foreign CIDRs.
	Foreign int
	// Reported says that the agent has published its request. Until then a block that
	// is not listed was lost rather than returned.
	Reported bool
	// Requested is the number of addresses it requests: in use, for waiting pods, and its reserve.
	// 0 if Reported: it does not need the family.
	Requested int
	// NoPreallocation says that the agent keeps no reserve and requests addresses once pods
	// need them. Requested 0 does not mean then that it does not need the family.
	NoPreallocation bool
	// PreAllocation is the reserve that the agent is configured to request. 0: none, or unknown.
	PreAllocation int
	// SingleBlock says that it is assigned one block, before it starts, for the lifetime of the node.
	SingleBlock bool
	// ActiveCIDRs are the CIDRs that an agent with a fixed block runs with though Assigned is empty: from
	// an earlier Node of its name.
	ActiveCIDRs []netip.Prefix

	// NodeAgent says that this project's node agent assigns the addresses: it reports all in use, and keeps a block
	// until it is closed and empty. Of the fields below only OfOwner concerns it.
	NodeAgent bool
	// OfOwner says that the blocks are for one owner, whose next pod may be on any node.
	OfOwner bool

	// Agent is the agent's container, "" if unknown.
	Agent string
	// MayPark is set if a block may be parked, because no other block of the node is.
	MayPark bool
	// PoolHasFree is set if a pool has a free block that could replace a parked one.
	PoolHasFree bool
	// MayHaveClosed is set if the agent may have closed blocks that record nothing of it.
	MayHaveClosed bool
	// MayCompact is set if a block may be parked only because the node can do without it.
	MayCompact bool
	// Regains is set if the agent went on to allocate from a block of the node after each parking.
	Regains bool
	// OtherFamilyFull is set, if blocks may be parked, when the agent also runs the other
	// family and neither has nor can get a free address of it: pods that wait do so for that
	// family.
	OtherFamilyFull bool
}

// blockShare is a node with an agent that is assigned whole blocks.
type blockShare struct {
	state      *State
	assignment *BlockAssignment // the state's
	input      *input
	blocks     *blocks
	closed     closedBlocks
}

// newBlockShare sorts the assigned CIDRs under their blocks.
func newBlockShare(s *State, input *input) *blockShare {
	w := &blockShare{state: s, assignment: s.BlockAssignment, input: input, blocks: sortBlocks(s, &input.budget)}
	w.blocks.countListed(w.assignment)
	for _, b := range w.blocks.all {
		b.assignment = wholeBlock{
			whole:              true,
			returnable:         w.assignment.Reported,
			predatesCiliumNode: !w.assignment.SingleBlock && !b.Created.IsZero() && !b.Created.After(s.Created),
			wasAssigned:        b.Listed || slices.Contains(w.input.memory.Assigned, b.CIDR),
			runs:               w.assignment.runsWith(b.Block),
			nodeNamesAnother:   w.assignment.SingleBlock && len(w.assignment.Assigned) > 0,
		}
	}
	return w
}

// HasNodeAgent reports whether this project's node agent assigns the addresses.
func (s *State) HasNodeAgent() bool { return s.BlockAssignment != nil && s.BlockAssignment.NodeAgent }

// ReturnsByItself reports whether the agent itself returns the blocks that it can spare. nil does not.
func (w *BlockAssignment) ReturnsByItself() bool { return w != nil && !w.NodeAgent }

// RequestFor returns the number of addresses that an agent requests for users and a reserve (Cilium v1.20.2,
// pkg/ipam/multipool_manager.go, neededIPCeil).
func RequestFor(users, reserve int) int {
	if reserve == 0 {
		return users
	}
	return ((users+reserve-1)/reserve + 1) * reserve
}

// isPublished reports whether the agent may assign a to pods.
func (w *BlockAssignment) isPublished(a netip.Addr) bool {
	return slices.ContainsFunc(w.Assigned, func(p netip.Prefix) bool { return p.Contains(a) })
}

// isOfNode reports whether a lies in a block of the node, or in a CIDR assigned to its agent.
func (w *blockShare) isOfNode(a netip.Addr) bool {
	return w.blocks.blockOf(a) != nil || w.assignment.isPublished(a)
}

// familyUnused reports whether the agent does not need the family.
func (w *BlockAssignment) familyUnused() bool {
	return w.Reported && w.Requested == 0 && !w.NoPreallocation
}

// lostByAgent reports whether a belongs to a pod that its agent did not restore: the
// agent returned a's block after it was assigned again. It would return it each time,
// and restores no pod before it restarts.
func (w *blockShare) lostByAgent(a netip.Addr) bool {
	return w.assignment.Reported && !w.input.memory.Restored[a].IsZero() && !w.assignment.isPublished(a)
}

// isStranded reports whether a lies in a block that is not listed and cannot be. If its
// agent has the pod, it requests the address itself.
func (w *blockShare) isStranded(a netip.Addr) bool {
	b := w.blocks.blockOf(a)
	return b != nil && (b.Conflict || b.Orphaned) && !w.assignment.isPublished(a)
}

// countBlockAssignment counts the demand of a node with an agent that reports no addresses: its own,
// those of pods, and one for each recent pod that has none yet. A pod without one for long is stuck
// before it requests one; once it does, the agent's request includes it. Pods with an address of
// another of Cilium's pools do not count, nor do pods that the agent has lost.
func (w *blockShare) countBlockAssignment() usage {
	s := w.state
	u := usage{state: s, reported: w.assignment.Reported, trusted: s.AgentSettled && w.assignment.Reported}
	for a, owner := range s.Used {
		if s.ours(a) && w.isOfNode(a) && !w.lostByAgent(a) {
			u.countUsed(owner)
		}
	}
	waiting := 0
	for _, pod := range s.Pods {
		counts, fresh := w.countsPod(&u, pod)
		if fresh {
			u.pendingPods = append(u.pendingPods, pod.Name)
		}
		switch {
		case counts:
			u.demand++
		case fresh && (pod.Accepted.IsZero() || w.isNew(pod.Accepted)):
			waiting++
		case !slices.ContainsFunc(pod.IPs, s.ours) && !w.assignment.familyUnused() && !w.assignment.OtherFamilyFull:
			u.stuck = append(u.stuck, pod)
		}
	}
	u.waiting = u.admitted(waiting)
	u.demand += u.waiting
	return u
}

// countsPod reports whether a pod has an address of the node, or is recent and has
// none yet. It learns its addresses.
func (w *blockShare) countsPod(u *usage, pod Pod) (counts, fresh bool) {
	hasAddress := false
	for _, a := range pod.IPs {
		if !u.state.ours(a) {
			continue
		}
		hasAddress = true
		if w.isOfNode(a) {
			counts = counts || !w.lostByAgent(a) && !w.isStranded(a)
			u.learn(a, user{name: pod.Name})
		}
	}
	return counts, !hasAddress && !w.assignment.familyUnused() && w.isNew(pod.Seen)
}

// isNew reports whether a pod of that time is so new that its agent may not have requested an address for it yet.
func (w *blockShare) isNew(since time.Time) bool {
	return w.input.now.Before(since.Add(w.input.policy.AckTimeout))
}

// needs covers the agent's request, and bound pods it has not seen yet. The
// policy's reserve counts only until the agent has reported: it has a reserve of its
// own (--ipam-multi-pool-pre-allocation).
func (w *blockShare) needs(u *usage) needs {
	n := needs{}
	agent := w.assignment
	requested := limit(agent.Requested)
	demand := max(u.demand, agent.agentRestores(u)) + w.closed.free
	if w.closed.free > 0 && w.assignment.OtherFamilyFull {
		// Pods that find no address beside a closed block make the agent request some. Once
		// they have found one they fail for the other family, and the agent returns it.
		requested = 0
	}
	switch {
	case agent.SingleBlock && len(agent.Assigned) > 0:
		// It has all it can have.
	case len(agent.ActiveCIDRs) > 0, agent.SingleBlock && w.awaitsRedrain():
		// It gets the block it runs with, or none.
	case agent.SingleBlock:
		n.target = 1
	case agent.NoPreallocation:
		n.target = max(demand, requested)
	case !agent.Reported:
		n.target = u.withReserve(w.input.policy, demand)
	case !agent.familyUnused():
		n.target = max(agentFloor, demand, requested)
	}
	if w.state.Expected > 0 && w.state.RunsFamily() && !agent.SingleBlock {
		// Until the Node can offer the requests of pods that are yet to be scheduled there. The agent
		// returns a block that stays unused, and gets it back as long as they wait.
		listed := w.blocks.published
		n.target = max(n.target, listed-offerRoom(u, w.blocks, listed)+limit(w.state.Expected))
	}
	n.targetWithoutReserve = n.target
	n.hardCap = math.MaxInt32 // a block takes as little room as a podCIDR
	if most := limit(w.state.Limits.MaxAllocate); most > 0 {
		n.hardCap = most + w.closed.free
	}
	return n
}

// mostAgentOwn is how many addresses an agent uses itself at most: router, ingress and health.
const mostAgentOwn = 3

// agentRestores is how many addresses an agent needs to start beside pods that it restores, 0
// if it has some of its own. It restores pods first. If no address is left for itself, it
// exits, and requests no more than its reserve (Cilium v1.20.2, daemon/cmd/daemon.go,
// configureDaemon).
func (w *BlockAssignment) agentRestores(u *usage) int {
	pods := u.demand - u.waiting
	if pods == 0 || u.own > 0 || u.state.AgentReady || !w.Reported || w.NoPreallocation {
		return 0
	}
	return pods + mostAgentOwn
}

// assignBlocks assigns the blocks in service that the node needs, and all of them
// until the agent has reported. The agent has returned a block it does not need, or
// was never assigned it.
func (w *blockShare) assignBlocks(p *planner) {
	p.plan.Capacity = w.blocks.foreign
	for _, b := range w.blocks.all {
		p.plan.Capacity += b.allocatable
	}
	if w.assignment.SingleBlock {
		w.assignSingle(p)
		return
	}
	for _, b := range w.blocks.all {
		needed := p.deficit() > 0 || !w.assignment.Reported
		if b.inService() && b.published == 0 && !w.closed.contains(b) && needed && p.room() > 0 {
			p.assignBlock(b)
		}
	}
}

func (p *planner) assignBlock(b *block) {
	b.assigned = b.Size > 0
	p.expect(b, b.Size)
}

// assignSingle assigns the one block that an agent with a single block gets. A cooling block must
// leave that phase first.
func (w *blockShare) assignSingle(p *planner) {
	if len(w.assignment.Assigned) > 0 || len(w.assignment.ActiveCIDRs) == 0 && w.awaitsRedrain() {
		return
	}
	if b := w.fixedBlock(); b != nil && b.Phase != ipalloc.CoolingDown {
		p.assignBlock(b)
	}
}

// awaitsRedrain reports whether pods have addresses of a block that cools down and must go: it drains again
// first, and is assigned then.
func (w *blockShare) awaitsRedrain() bool {
	return slices.ContainsFunc(w.blocks.all, func(b *block) bool {
		return b.Phase == ipalloc.CoolingDown && b.users > 0 && b.Size > 0 && !b.Conflict && !b.Orphaned && !b.drainEnds() && !b.superseded()
	})
}

// fixedBlock returns the block to assign to a node that has none, or nil. Its Node may have been
// deleted under the agent and created again. So a block with pods' addresses comes first, then the
// oldest: the agent may run with it and not have said so yet.
func (w *blockShare) fixedBlock() *block {
	fitting := slices.DeleteFunc(slices.Clone(w.blocks.all), func(b *block) bool { return !w.fits(b) })
	if len(fitting) == 0 {
		return nil
	}
	return slices.MinFunc(fitting, func(a, b *block) int {
		return cmp.Or(cmp.Compare(min(b.users, 1), min(a.users, 1)), a.Created.Compare(b.Created), a.CIDR.Compare(b.CIDR))
	})
}

// fits reports whether a block may be the one of a node that has none. An agent that runs
// gets the block it runs with, draining or not, and no other: it would take that when it
// restarts, and its pods would lose connectivity.
func (w *blockShare) fits(b *block) bool {
	if len(w.assignment.ActiveCIDRs) > 0 {
		return b.assignment.runs
	}
	return b.Size > 0 && (!b.Unwritable && (b.inService() || b.drainEnds()) || b.users > 0 && b.keepsUsed())
}

// runsWith reports whether an agent runs with a block that its Node can name, while the Node names
// no CIDR.
func (w *BlockAssignment) runsWith(b *Block) bool {
	return slices.Contains(w.ActiveCIDRs, b.CIDR) && !b.Conflict && !b.Orphaned
}

// RunsWithAnother reports whether an agent that is assigned no block runs with a CIDR that cannot
// be assigned: none of the node's blocks has it. Then it gets no block.
func (s *State) RunsWithAnother() bool {
	d := s.BlockAssignment
	return d != nil && len(d.ActiveCIDRs) > 0 && !slices.ContainsFunc(s.Blocks, func(b Block) bool { return d.runsWith(&b) })
}

// restoreLeftovers lists the blocks that an agent may have pods in, draining or not: its successor
// could not restore them otherwise.
func (w *blockShare) restoreLeftovers(p *planner) {
	for _, b := range w.blocks.all {
		if b.assignment.wasAssigned && (b.Leftover || b.assignment.predatesCiliumNode) {
			p.nextMemory.Assigned = append(p.nextMemory.Assigned, b.CIDR)
		}
		if b.mayHavePods() && b.published == 0 && !b.assigned && b.keepsUsed() {
			p.assignBlock(b)
		}
	}
}

// givesBackWithin is the longest time until an agent returns an unneeded block: it reconciles each
// minute, and later after a write conflict (Cilium v1.20.1, pkg/ipam/multipool_manager.go,
// refreshPoolInterval).
const givesBackWithin = 5 * time.Minute

// reassignUsed assigns the blocks of addresses in use again that are not listed: see
// planner.restoreUsed. It remembers these addresses until the agent has kept their block for
// long: then it needs the block.
func (w *blockShare) reassignUsed(p *planner) {
	for a, listedSince := range w.input.memory.Restored {
		if !p.usage.inUse(a) {
			continue
		}
		if w.assignment.isPublished(a) {
			if listedSince.IsZero() {
				listedSince = w.input.now
			}
			if p.dueOrRequeue(listedSince.Add(givesBackWithin)) {
				continue
			}
		}
		remember(&p.nextMemory.Restored, a, listedSince)
	}
	if w.assignment.SingleBlock {
		return // see assignSingle
	}
	isExcluded := func(a netip.Addr) bool { return w.assignment.isPublished(a) || w.lostByAgent(a) }
	for _, a := range p.lost(isExcluded) {
		remember(&p.nextMemory.Restored, a, time.Time{})
		if b := w.blocks.blockOf(a); !b.assigned {
			p.assignBlock(b)
			b.assigned = true
		}
	}
}

// clearAll deletes leftover release entries: an agent that is assigned whole blocks
// answers none. A block about to cool down keeps its entries until then.
func (p *planner) clearAll() {
	for _, a := range p.blocks.walk {
		if b := p.blocks.blockOf(a); b == nil || !p.conditionFirst(b) {
			p.clear(a)
		}
	}
}

// obstacleTo returns the obstacle to a leaving block.
func (w *blockShare) obstacleTo(p *planner, b *block) (WaitReason, []string) {
	switch {
	case len(b.byAgent) > 0:
		return WaitAgent, b.byAgent
	case len(b.byPods) > 0 && !w.closed.contains(b) && w.state.regains():
		return WaitNewPods, b.byPods
	case len(b.byPods) > 0:
		return WaitPods, b.byPods
	case b.waitReason == WaitReplacement:
		return WaitReplacement, nil
	case b.waitReason != "":
		return WaitPodAddress, slices.Sorted(slices.Values(p.usage.pendingPods))
	case w.assignment.MayPark && !p.usage.trusted:
		return WaitUnsettled, nil
	case w.assignment.Reported || w.assignment.SingleBlock:
		return WaitReturn, nil
	default:
		return WaitUnsettled, nil
	}
}

// reportStuckPods adds the pods that have waited for long to the demand, for reports alone: the
// agent has no address for them, and requests more than it has, unless its block is fixed. A
// closed block makes them count anyway: see findClosed.
func (w *blockShare) reportStuckPods(p *planner) {
	isShort := w.assignment.SingleBlock || p.needs.target > p.plan.Capacity
	if w.closed.free > 0 || p.usage.demand < p.plan.Capacity || !isShort {
		return
	}
	p.plan.Demand += p.usage.admitted(len(p.usage.stuck))
	p.plan.Shortage = max(0, p.plan.Demand-p.plan.Capacity-p.plan.Claim.Room)
}
