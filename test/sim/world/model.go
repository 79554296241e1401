package world

import (
	"maps"
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/model/mapping"
	"github.com/cilium-pool/cilium-pool-operator/test/model/protocol"
)

// noStepOfModel is the rule that each step must be one of the model.
const noStepOfModel = 11

// refinement holds each step of a world to the model: it observes changes and passes them to a
// monitor for each address of a block, or each block that is assigned whole, and each pair of nodes.
type refinement struct {
	w        *World
	model    *protocol.Model
	blocks   map[string]protocol.Block // by name, with the number of its owner
	nodes    []seenNode                // by the number of a machine
	monitors []*follower
	of       map[string][]*follower // by block
	// left are nodes that the model no longer follows, and followed is the number of monitors that
	// are still on.
	left     []bool
	followed int
}

// seenNode is the last observed state of a CiliumNode and its machine. Of a block that is assigned
// whole, published has the first address.
type seenNode struct {
	published map[netip.Addr]bool
	entries   map[netip.Addr]protocol.Entry
	reported  [2]bool // by family
	agent     protocol.Agent
	pods      map[netip.Addr]bool
}

// follower is a monitor with its block and nodes.
type follower struct {
	*mapping.Monitor
	block string
	cidr  netip.Prefix // a single address, or a block that is assigned whole
	nodes [2]int
	// off: something that the model lacks has happened to its block or to one of its nodes.
	off bool
}

func newRefinement(w *World) *refinement {
	return &refinement{
		w: w, model: mapping.Model(w.whole()), nodes: make([]seenNode, len(w.machines)), left: make([]bool, len(w.machines)),
		blocks: map[string]protocol.Block{}, of: map[string][]*follower{},
	}
}

// before sees an action that is about to happen, and ends monitors that the model cannot follow.
func (r *refinement) before(a Action) {
	switch a.Verb {
	case AgentFamilies, NodeDelete, NodeOff, CNDelete:
		r.leaveNode(r.number(a.Who))
	case CNEdit:
		if a.What != "touch" && a.What != "cidr" { // podCIDRs are none of the model's
			r.leaveNode(r.number(a.Who))
		}
	case BlockTear, BlockStrip:
		r.leaveBlock(a.What)
	case BackupAgain:
		for n := range r.left {
			r.leaveNode(n)
		}
	}
}

func (r *refinement) leaveNode(n int) {
	r.left[n] = true
	for _, f := range r.monitors {
		if slices.Contains(f.nodes[:], n) {
			r.leave(f)
		}
	}
}

func (r *refinement) leaveBlock(name string) {
	for _, f := range r.of[name] {
		r.leave(f)
	}
}

func (r *refinement) leave(f *follower) {
	if !f.off {
		f.off = true
		r.followed--
	}
}

// share is the followed part of everything that could be followed.
func (r *refinement) share() float64 {
	if len(r.monitors) == 0 {
		return 1
	}
	return float64(r.followed) / float64(len(r.monitors))
}

// view returns the current state for a follower.
func (r *refinement) view(f *follower) mapping.View {
	var v mapping.View
	v.Blocks[0] = r.blocks[f.block]
	owner := int(v.Blocks[0].Owner) - 1
	v.Blocks[0].Owner = 0
	for i, n := range f.nodes {
		seen := &r.nodes[n]
		addr := f.cidr.Addr()
		v.Nodes[i] = protocol.Node{Agent: seen.agent, Unreported: !r.w.whole() && !seen.reported[ipalloc.FamilyOf(addr)]}
		v.Nodes[i].Addresses[0] = protocol.Address{Published: seen.published[addr], Entry: seen.entries[addr], Pod: seen.hasPod(f.cidr)}
		if owner == n {
			v.Blocks[0].Owner = uint8(i + 1)
		}
	}
	if v.Blocks[0].Owner == 0 { // a third node does not matter to these
		v.Blocks[0] = protocol.Block{}
	}
	return v
}

// stored sees a version.
func (r *refinement) stored(v Version) {
	switch v.Kind {
	case KindCiliumNode:
		r.changed()
		r.storedNode(v)
	case KindBlock:
		r.changed()
		r.storedBlock(v)
	}
}

func (r *refinement) storedNode(v Version) {
	n := r.number(v.Key)
	seen := &r.nodes[n]
	seen.published, seen.entries, seen.reported = map[netip.Addr]bool{}, map[netip.Addr]protocol.Entry{}, [2]bool{}
	if cn, ok := v.New.(*ciliumv2.CiliumNode); ok {
		seen.read(cn)
	}
	for _, f := range r.monitors {
		i := slices.Index(f.nodes[:], n)
		switch {
		case i < 0 || f.off:
		case r.w.rules.writer != nil:
			r.hold(f, f.LeaderWritesNode(r.leader(f), i, r.view(f)))
		default:
			r.hold(f, f.AgentWritesNode(i, r.view(f)))
		}
	}
}

func (n *seenNode) read(cn *ciliumv2.CiliumNode) {
	for addr := range addresses(cn.Spec.IPAM.Pool) {
		n.published[addr] = true
	}
	for _, cidr := range allocatedIn(cn) {
		n.published[cidr.Addr()] = true
	}
	for addr, state := range addresses(cn.Status.IPAM.ReleaseIPs) {
		n.entries[addr] = map[expand.ReleaseStatus]protocol.Entry{
			expand.Marked: protocol.Marked, expand.Ready: protocol.Ready, expand.DoNotRelease: protocol.Refused,
		}[expand.ReleaseStatus(state)]
	}
	for addr := range addresses(cn.Status.IPAM.Used) {
		n.reported[ipalloc.FamilyOf(addr)] = true
	}
}

func (n *seenNode) hasPod(cidr netip.Prefix) bool {
	if cidr.IsSingleIP() {
		return n.pods[cidr.Addr()]
	}
	return slices.ContainsFunc(slices.Collect(maps.Keys(n.pods)), cidr.Contains)
}

func (r *refinement) storedBlock(v Version) {
	obj, _ := v.New.(*v1alpha1.PodIPBlock)
	if obj == nil {
		delete(r.blocks, v.Key)
	} else {
		b, err := crd.BlockFrom(obj)
		if err != nil {
			return // people have made it, and it is no block
		}
		r.follow(b)
		now := r.block(b)
		// If clocks are off by more than a cooldown, that may pass at once, but only in the
		// next step.
		now.Cooled = now.Cooled && r.blocks[v.Key].Phase == protocol.CoolingDown
		r.blocks[v.Key] = now
		r.leaveOverlaps(b)
	}
	for _, f := range r.of[v.Key] {
		if f.off {
			continue
		}
		if r.w.rules.writer == nil {
			f.PeopleWriteBlock(r.view(f))
			continue
		}
		r.hold(f, f.LeaderWritesBlock(r.leader(f), r.strips(v), r.view(f)))
	}
}

// strips reports whether a version only lacks our finalizer, of a block that is being deleted.
func (r *refinement) strips(v Version) bool {
	now, _ := v.New.(*v1alpha1.PodIPBlock)
	old, _ := v.Old.(*v1alpha1.PodIPBlock)
	return now != nil && old != nil && contains(old.Finalizers, v1alpha1.Finalizer) && !contains(now.Finalizers, v1alpha1.Finalizer)
}

// block returns the model's state of a block.
func (r *refinement) block(b crd.Block) protocol.Block {
	out := protocol.Block{Owner: uint8(r.number(b.Node) + 1)}
	switch b.Phase {
	case ipalloc.Draining:
		out.Phase = protocol.Draining
	case ipalloc.CoolingDown:
		out.Phase = protocol.CoolingDown
		out.Cooled = r.w.clock.now.Sub(b.Since) >= r.w.cfg.Settings.Defaults.Cooldown-2*r.w.cfg.Skew
	}
	return out
}

// follow starts to follow a new block.
func (r *refinement) follow(b crd.Block) {
	if _, known := r.of[b.Name]; known {
		return
	}
	for _, cidr := range r.parts(b.CIDR) {
		for i := range r.nodes {
			for j := range i {
				f := &follower{block: b.Name, cidr: cidr, nodes: [2]int{j, i}}
				f.Monitor = mapping.New(r.model, r.view(f))
				r.monitors, r.followed = append(r.monitors, f), r.followed+1
				r.of[b.Name] = append(r.of[b.Name], f)
				if r.left[i] || r.left[j] || !r.w.users.onGrid(b.Name) { // of another size, it may overlap a claim
					r.leave(f)
				}
			}
		}
	}
}

// parts returns the parts of a block to follow.
func (r *refinement) parts(block netip.Prefix) []netip.Prefix {
	if r.w.whole() {
		return []netip.Prefix{block}
	}
	var out []netip.Prefix
	for addr := block.Addr(); block.Contains(addr); addr = addr.Next() {
		out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return out
}

// leaveOverlaps stops following blocks that overlap another.
func (r *refinement) leaveOverlaps(b crd.Block) {
	for _, f := range r.monitors {
		if f.block != b.Name && b.CIDR.Overlaps(f.cidr) {
			r.leave(f)
		}
	}
	if r.w.overlapped(b.Name, b.CIDR) {
		r.leaveBlock(b.Name)
	}
}

// changed observes the state outside of objects: agents, pods and time.
func (r *refinement) changed() {
	var touched []int
	for i, m := range r.w.machines {
		agent, pods := m.modelled()
		if seen := &r.nodes[i]; seen.agent != agent || !maps.Equal(seen.pods, pods) {
			seen.agent, seen.pods = agent, pods
			touched = append(touched, i)
		}
	}
	r.cooled()
	if len(touched) == 0 {
		return
	}
	for _, f := range r.monitors {
		if !f.off && (slices.Contains(touched, f.nodes[0]) || slices.Contains(touched, f.nodes[1])) {
			r.hold(f, f.Changes(r.view(f)))
		}
	}
}

// cooled observes that cooldowns have passed.
func (r *refinement) cooled() {
	for name, b := range r.blocks {
		if b.Phase != protocol.CoolingDown || b.Cooled {
			continue
		}
		obj, ok := r.w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if !ok {
			continue // it has just been deleted
		}
		now, err := crd.BlockFrom(obj)
		if err == nil && r.block(now).Cooled {
			b.Cooled = true
			r.blocks[name] = b
			for _, f := range r.of[name] {
				if !f.off {
					r.hold(f, f.Changes(r.view(f)))
				}
			}
		}
	}
}

// modelled returns the model's state of an agent, and the addresses that its pods and the agent
// itself have. The agent takes its own addresses anew at each start.
func (m *machine) modelled() (protocol.Agent, map[netip.Addr]bool) {
	agent := protocol.Down
	switch {
	case m.phase == opened:
		agent = protocol.Opened
	case m.phase > opened:
		agent = protocol.Serving
	}
	pods := map[netip.Addr]bool{}
	for _, e := range m.endpoints {
		for _, addr := range e.addrs() {
			pods[addr] = true
		}
	}
	if m.phase == serving {
		for _, addr := range m.router {
			pods[addr] = true
		}
	}
	return agent, pods
}

// begins sees that a reconcile of a node begins.
func (r *refinement) begins(o *Operator, f *flight) {
	r.eachOf(o, f, func(x *follower, leader int) { x.Begins(leader) })
}

// reads sees a live read.
func (r *refinement) reads(o *Operator, f *flight, c *call) {
	r.eachOf(o, f, func(x *follower, leader int) {
		switch {
		case c.kind == KindBlock && c.key == x.block:
			x.ReadsBlock(leader)
		case c.kind == KindCiliumNode && c.key == f.name:
			x.ReadsNode(leader)
		}
	})
}

// unbound sees a write that is not conditional. In the model each write is conditional on the
// version it was decided on, whether or not there has been another since.
func (r *refinement) unbound(c *call) {
	if c.kind == KindCiliumNode || c.kind == KindBlock {
		r.w.violate(noStepOfModel, "%s is bound to no version, and no write of the model is like that", c)
	}
}

// dies sees that a process ends.
func (r *refinement) dies(o *Operator) {
	for _, x := range r.monitors {
		for i := range x.nodes {
			x.Dies(r.slot(o, i))
		}
	}
}

// eachOf calls do for each follower that a reconcile of a node is about, with the leader's
// number.
func (r *refinement) eachOf(o *Operator, f *flight, do func(x *follower, leader int)) {
	if f.controller != nodes {
		return
	}
	n := r.number(f.name)
	for _, x := range r.monitors {
		if i := slices.Index(x.nodes[:], n); i >= 0 && !x.off {
			do(x, r.slot(o, i))
		}
	}
}

// leader returns the leader that writes, for a follower.
func (r *refinement) leader(x *follower) int {
	o := r.w.rules.writer
	if o.current == nil || o.current.controller != nodes {
		return protocol.NoLeader
	}
	i := slices.Index(x.nodes[:], r.number(o.current.name))
	if i < 0 {
		return protocol.NoLeader
	}
	return r.slot(o, i)
}

// slot returns the number of a leader: a process, and which of the two nodes it works on.
func (r *refinement) slot(o *Operator, node int) int {
	return 2*slices.Index(r.w.operators, o) + node
}

func (r *refinement) number(node string) int {
	return slices.IndexFunc(r.w.machines, func(m *machine) bool { return m.name == node })
}

func (r *refinement) hold(x *follower, err error) {
	if err != nil {
		r.w.violate(noStepOfModel, "%s of block %s, on nodes %s and %s: %s", x.cidr, x.block,
			r.w.machines[x.nodes[0]].name, r.w.machines[x.nodes[1]].name, err)
	}
}
