package expand

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// ReportLag is the time that the agent's report may still name a pod that has ended: twice Cilium's
// default --ipam-cilium-node-update-rate.
const ReportLag = 30 * time.Second

// Offer returns the number of addresses of the family that the Node offers to pods that request
// one: the scheduler and the kubelet compare it with the sum of the requests of the pods on the
// node. It counts the addresses that any pod may get and that stay in the pool once p has been
// carried out, except
//
//   - the agent's own, and the ones that it must still take;
//   - addresses in use, unless by a bound pod that requests one. An address that the report names
//     and no bound pod has is in use as well, as by a pod that was deleted by force, unless its pod
//     has just ended: the kubelet shows that only once the sandbox is gone;
//   - one for each bound pod that requests none and has no known address yet.
//
// So all pods that fit beside the bound ones find an address, and bound pods that wait for one do,
// too. Before the agent has reported, no address counts.
//
// The result is never below the requests of the pods with an address: a kubelet that restarts
// admits its pods anew, and fails the ones that the Node has no room for. It makes up for requests
// by pods that take their address of another Cilium pool.
//
// Of an agent that is assigned whole blocks, the addresses of listed blocks in service count. The
// agent may return an unused one at any time. Until that has cooled down the node can have it back,
// so no other node has the address of a pod that is bound by the older offer.
func Offer(s State, b Budget, p Plan) int {
	o := &offering{&s, sortBlocks(&s, &b), &p}
	if s.BlockAssignment != nil {
		o.blocks = newBlockShare(&s, &input{budget: b}).blocks
	}
	u := o.requestUse()
	n := u.requested
	if u.reported {
		n = max(n, o.offerable(u))
	}
	return n + s.OtherRequests
}

// RunsFamily reports whether the agent runs the family, as far as is known.
func (s *State) RunsFamily() bool {
	w := s.BlockAssignment
	return !s.FamilyDisabled && (w == nil || !w.familyUnused())
}

// offering is a node, and a plan for it.
type offering struct {
	state  *State
	blocks *blocks
	plan   *Plan
}

// offerable is Offer without its lower bound.
func (o *offering) offerable(u requestUse) int {
	free := 0
	if o.state.BlockAssignment != nil {
		free = o.free(u)
	}
	for a, owner := range o.state.Pool {
		byRequest, used := u.usedByRequest[a]
		if owner == "" && o.state.ours(a) && (byRequest || !used) && o.stays(a) {
			free++
		}
	}
	return free - u.waiting - u.agentNeeds
}

// free is the number of addresses of listed blocks, or of CIDRs of no block, that offerable counts.
func (o *offering) free(u requestUse) int {
	free := o.state.BlockAssignment.Foreign
	serves := func(b *block) bool {
		isClosed := o.state.isClosed(b.Block) || o.state.HasNodeAgent() && b.Parked
		return b.Listed && b.Phase == ipalloc.InService && !isClosed && !o.drains(b)
	}
	for _, b := range o.blocks.all {
		if serves(b) {
			free += b.allocatable
		}
	}
	for a, byRequest := range u.usedByRequest {
		b := o.blocks.blockOf(a)
		if !byRequest && (b != nil && serves(b) || b == nil && o.state.BlockAssignment.isPublished(a)) {
			free--
		}
	}
	return free
}

// requestUse is how the addresses of a node are used, as requests account for it.
type requestUse struct {
	// usedByRequest has every address in use: whether a bound pod that requests one has it.
	usedByRequest map[netip.Addr]bool
	// requested is the sum of the requests of bound pods with an address, waiting the number of
	// bound pods without one that request none, agentNeeds the number of addresses that the agent must
	// still take.
	requested, waiting, agentNeeds int
	reported                       bool
}

func (o *offering) requestUse() requestUse {
	f := o.state.Family
	u := requestUse{usedByRequest: make(map[netip.Addr]bool, len(o.state.Used))}
	for _, pod := range o.state.Pods {
		for _, a := range pod.IPs {
			if o.state.ours(a) {
				u.usedByRequest[a] = pod.Requests[f] > 0
			}
		}
	}
	agents := o.agentsOwn()
	byOwner := map[string]netip.Addr{} // reported, and no pod's status names it
	for a, owner := range o.state.Used {
		if !o.state.ours(a) {
			continue
		}
		u.reported = true
		holder := userOf(owner)
		if _, known := u.usedByRequest[a]; known || holder.agent || o.hasEnded(holder.name) {
			continue
		}
		u.usedByRequest[a] = false
		if first, isSecond := byOwner[holder.name]; !isSecond || a.Less(first) {
			byOwner[holder.name] = a
		}
	}
	for a := range agents {
		u.usedByRequest[a] = false
	}
	if o.state.BlockAssignment != nil {
		u.reported = o.state.BlockAssignment.Reported
	}
	u.agentNeeds = o.agentNeeds(agents)
	o.addRequests(&u, byOwner)
	return u
}

// agentNeeds is the number of addresses that the agent must still take: the ones that it waits for
// when it starts, and others in place of its own leaving ones.
func (o *offering) agentNeeds(agents map[netip.Addr]struct{}) int {
	n := max(agentFloor, len(agents))
	w := o.state.BlockAssignment
	if o.state.HasNodeAgent() || w != nil && w.NoPreallocation { // its addresses are for pods alone
		return 0
	}
	if w != nil { // it keeps its own
		return n - len(agents)
	}
	for a := range agents {
		b := o.blocks.blockOf(a)
		isLeaving := b != nil && (b.vacates() || b.Request != None && o.drains(b))
		if !isLeaving {
			n--
		}
	}
	return n
}

// agentsOwn are the addresses that the agent uses itself.
func (o *offering) agentsOwn() map[netip.Addr]struct{} {
	addrs := map[netip.Addr]struct{}{}
	for a, owner := range o.state.Used {
		if o.state.ours(a) && userOf(owner).agent {
			addrs[a] = struct{}{}
		}
	}
	for _, a := range o.state.Own {
		if o.state.ours(a) {
			addrs[a] = struct{}{}
		}
	}
	return addrs
}

// hasEnded reports whether a pod has just ended under an agent that runs steadily, so
// that its address is free: an agent that is down frees it only once it is back.
func (o *offering) hasEnded(name string) bool {
	return o.state.AgentSettled && slices.Contains(o.state.Ended, name)
}

// addRequests counts the requests of bound pods. A pod without an address in its status may be
// reported by its name already.
func (o *offering) addRequests(u *requestUse, byOwner map[string]netip.Addr) {
	for _, pod := range o.state.Pods {
		requests := int(pod.Requests[o.state.Family])
		hasAddress := slices.ContainsFunc(pod.IPs, o.state.ours)
		if a, reported := byOwner[pod.Name]; reported && !hasAddress {
			delete(byOwner, pod.Name)
			u.usedByRequest[a] = requests > 0
			hasAddress = true
		}
		if hasAddress {
			u.requested += requests
		} else if requests == 0 {
			u.waiting++
		}
	}
}

// stays reports whether any pod may get a, and whether a stays in the pool once the plan
// has been carried out.
func (o *offering) stays(a netip.Addr) bool {
	if inHandshake(o.state.Release[a]) {
		return false
	}
	if _, marked := slices.BinarySearchFunc(o.plan.Mark, a, netip.Addr.Compare); marked {
		return false
	}
	b := o.blocks.blockOf(a)
	if b == nil {
		return true
	}
	return b.Phase == ipalloc.InService && !b.releases(b.usable(a)) && !o.drains(b)
}

// drains reports whether the plan lets a block begin to drain.
func (o *offering) drains(b *block) bool {
	return slices.ContainsFunc(o.plan.Drain, func(drain Drain) bool { return drain.CIDR == b.CIDR })
}

// Room is a node's offer to pods that are yet to be scheduled, in one family.
type Room struct {
	// Free is the number of addresses that the Node offers, or is about to, beyond the requests of
	// its bound pods. Below 0: these request more.
	Free int
	// Back is the number of addresses it can take back of blocks that leave. A caller may add
	// addresses of blocks that are being claimed.
	Back int
	// Blocks is the number of blocks it may claim, and Addresses the number of their addresses it
	// may publish, by its own limits.
	Blocks, Addresses int
}

// RoomOf returns the room of a node, for any s.Expected.
func RoomOf(now time.Time, policy Policy, s State) Room {
	s.Expected = 0
	s.Limits.MaxAboveWatermark = 0 // the latter follows the target
	input := &input{now: now, policy: policy}
	if s.BlockAssignment.ReturnsByItself() {
		return roomOfBlocks(&s, input)
	}
	p := planPublished(&s, input)
	published := p.blocks.openCapacity()
	free := offerRoom(&p.usage, p.blocks, published)
	p.fillBlocks()
	p.cancelDrains()
	if s.FamilyDisabled {
		return Room{}
	}
	return p.roomWith(free + p.plan.Capacity - published)
}

// roomOfBlocks is RoomOf a node with an agent that is assigned whole blocks.
func roomOfBlocks(s *State, input *input) Room {
	w, p := planBlocks(s, input)
	listed := p.blocks.published
	free := offerRoom(&p.usage, p.blocks, listed)
	w.assignBlocks(p)
	p.cancelDrains()
	if !s.RunsFamily() {
		return Room{}
	}
	return p.roomWith(free + p.plan.Capacity - listed)
}

// roomWith returns the room of a node with so many free addresses once the plan is done.
func (p *planner) roomWith(free int) Room {
	room := Room{Free: free, Blocks: max(0, p.input.policy.MaxBlocks-p.blocks.inService())}
	for _, b := range p.blocks.all {
		if b.mayReturn() && !p.closed.contains(b) && room.Blocks > 0 {
			room.Back += b.Count()
			room.Blocks--
		}
	}
	room.Addresses = p.room()
	return room
}

// offerRoom is the number of published addresses that the Node offers beyond the requests of its
// bound pods. Until the agent has reported, the Node offers none, so it is the later offer.
func offerRoom(u *usage, bs *blocks, published int) int {
	if !u.reported {
		return published - u.demand - max(0, agentFloor-u.own)
	}
	requested := 0
	for i := range u.state.Pods {
		requested += int(u.state.Pods[i].Requests[u.state.Family])
	}
	o := &offering{u.state, bs, &Plan{}}
	return o.offerable(o.requestUse()) - requested
}
