// Package mapping compares a run of the real code with the model: each of its steps must be a
// step of the model.
//
// A Monitor follows one address of one block on two nodes, or a block that is assigned whole, so
// its instance of the model has one block of one address. Their content on the API server, and the
// agents and pods of the nodes, are the same in both. The operations of leaders exist only in the
// model, and follow from the observed steps. If several states of the model explain the
// observations, all are kept. A step that none explains is a finding.
package mapping

import (
	"fmt"

	"github.com/cilium-pool/cilium-pool-operator/test/model/protocol"
)

// Leaders is the number of leaders that a Monitor distinguishes: reconciles of either node, by
// either of two processes.
const Leaders = 4

// View is the observable part of a state of the model. Its leaders are idle, and no block is
// Withdrawn.
type View = protocol.State

// Model returns the instance that a Monitor follows, of multi-pool mode if whole. Caches may have
// any age, and entries are kept as they are.
func Model(whole bool) *protocol.Model {
	m, err := protocol.New(protocol.Config{
		Nodes: 2, Blocks: 1, Addresses: 1, Leaders: Leaders, Cilium: protocol.AsShipped(), OldCaches: true, FenceMarks: true, Whole: whole,
	})
	if err != nil {
		panic(err)
	}
	return m
}

// Monitor follows one address. It is not safe for concurrent use.
type Monitor struct {
	model *protocol.Model
	now   View
	// states are the states of the model that explain the observations.
	states []protocol.State
}

// New returns a monitor that starts at the present view, with idle leaders.
func New(model *protocol.Model, now View) *Monitor {
	return &Monitor{model: model, now: now, states: []protocol.State{now}}
}

// Begins records that a leader begins a reconcile, idle.
func (x *Monitor) Begins(leader int) {
	x.advance(func(s *protocol.State) {
		s.Leaders[leader] = protocol.Leader{Fenced: s.Leaders[leader].Fenced}
	})
}

// Dies records that a leader's process ends.
func (x *Monitor) Dies(leader int) {
	x.advance(func(s *protocol.State) { s.Leaders[leader] = protocol.Leader{} })
}

// ReadsBlock records that a leader has read the block live.
func (x *Monitor) ReadsBlock(leader int) { x.may(leader, protocol.ReadsBlock) }

// ReadsNode records that a leader has read the CiliumNode of its node live.
func (x *Monitor) ReadsNode(leader int) { x.may(leader, protocol.ReadsNode) }

// may adds the states after a read. The leader may not need its earlier read.
func (x *Monitor) may(leader int, read protocol.Verb) {
	next := newSet(x.model)
	for _, s := range x.states {
		next.add(s)
		s.Leaders[leader] = protocol.Leader{Fenced: s.Leaders[leader].Fenced}
		x.model.Each(&s, func(a protocol.Action, after *protocol.State) {
			if a.Verb == read && a.Leader == leader {
				next.add(*after)
			}
		})
	}
	x.states = next.states
}

// LeaderWritesNode records that a leader has written a CiliumNode; NoLeader: a leader of
// another node.
func (x *Monitor) LeaderWritesNode(leader, node int, now View) error {
	if now == x.now {
		x.advance(func(s *protocol.State) { x.model.NodeWritten(s, node, leader) })
	} else if !x.explain(now, 1, func(a protocol.Action) bool {
		return a.Leader == leader && a.Node == node &&
			oneOf(a.Verb, protocol.Publishes, protocol.Marks, protocol.Clears, protocol.Removes, protocol.Fences)
	}) {
		return x.fail("a leader has written the CiliumNode", now)
	}
	if leader != protocol.NoLeader {
		x.may(leader, protocol.ReadsNode) // the response shows as much as a read
	}
	return nil
}

// AgentWritesNode records that an agent has written its CiliumNode.
func (x *Monitor) AgentWritesNode(node int, now View) error {
	reported := func(s *protocol.State) { s.Nodes[node].Unreported = now.Nodes[node].Unreported }
	if x.now.Nodes[node].Addresses == now.Nodes[node].Addresses {
		x.advance(func(s *protocol.State) {
			x.model.NodeWritten(s, node, protocol.NoLeader)
			reported(s)
		})
		x.now = now
		return nil
	}
	next := newSet(x.model)
	for _, s := range x.states {
		x.model.Each(&s, func(a protocol.Action, after *protocol.State) {
			if a.Node != node || !oneOf(a.Verb, protocol.Reports, protocol.RefusesLate, protocol.Returns) {
				return
			}
			t := *after
			if reported(&t); visible(t) == now {
				next.add(t)
			}
		})
	}
	if len(next.states) == 0 {
		return x.fail("an agent has written its CiliumNode", now)
	}
	x.states, x.now = next.states, now
	return nil
}

// LeaderWritesBlock records that a leader has written or deleted the block. own means that the
// write is a step of deleting it: the leader's deletion is then bound to the new version.
func (x *Monitor) LeaderWritesBlock(leader int, own bool, now View) error {
	if now == x.now {
		x.advance(func(s *protocol.State) { x.blockWritten(s, leader, own) })
		return nil
	}
	if !x.explain(now, 1, func(a protocol.Action) bool {
		byLeader := a.Leader == leader && oneOf(a.Verb, protocol.Claims, protocol.Deletes)
		return byLeader || oneOf(a.Verb, protocol.Drains, protocol.TakesBack, protocol.CoolsDown)
	}) {
		return x.fail("a leader has written the block", now)
	}
	return nil
}

func (x *Monitor) blockWritten(s *protocol.State, leader int, own bool) {
	var had protocol.Leader
	if leader != protocol.NoLeader {
		had = s.Leaders[leader]
	}
	x.model.BlockWritten(s, 0)
	if own && had.Op == protocol.Delete {
		had.Fenced = s.Leaders[leader].Fenced
		s.Leaders[leader] = had
	}
}

// PeopleWriteBlock records that a person has created, changed or deleted the block, which is
// always allowed.
func (x *Monitor) PeopleWriteBlock(now View) {
	x.advance(func(s *protocol.State) {
		s.Blocks = now.Blocks
		x.model.BlockWritten(s, 0)
	})
	x.now = now
}

// Changes records that agents, pods or time have changed something, but no object.
func (x *Monitor) Changes(now View) error {
	if now == x.now {
		return nil
	}
	if !x.explain(now, 3, func(a protocol.Action) bool {
		return oneOf(a.Verb, protocol.Allocates, protocol.PodGoes, protocol.AgentStarts, protocol.AgentRestores, protocol.RestoresAll,
			protocol.AgentCrashes, protocol.CooldownPasses)
	}) {
		return x.fail("an agent, a pod or time has changed", now)
	}
	return nil
}

// explain keeps the states that look like now and that at most so many steps reach.
func (x *Monitor) explain(now View, steps int, allowed func(protocol.Action) bool) bool {
	next, level := newSet(x.model), newSet(x.model)
	for _, s := range x.states {
		level.add(s)
	}
	for range steps {
		further := newSet(x.model)
		for _, s := range level.states {
			x.model.Each(&s, func(a protocol.Action, after *protocol.State) {
				if !allowed(a) {
					return
				}
				if further.add(*after); visible(*after) == now {
					next.add(*after)
				}
			})
		}
		level = further
	}
	if len(next.states) == 0 {
		return false
	}
	x.states, x.now = next.states, now
	return true
}

// fail describes a step that the model does not allow, and continues from there.
func (x *Monitor) fail(what string, now View) error {
	err := fmt.Errorf("%s, which is no step of the model: before %s, after %s, with %d states of leaders, such as %v",
		what, describe(x.now), describe(now), len(x.states), x.states[0].Leaders)
	*x = *New(x.model, now)
	return err
}

func (x *Monitor) advance(do func(*protocol.State)) {
	next := newSet(x.model)
	for _, s := range x.states {
		do(&s)
		next.add(s)
	}
	x.states = next.states
}

func describe(v View) string {
	b := v.Blocks[0]
	return fmt.Sprintf("block %+v, nodes %+v and %+v", b, node(v, 0), node(v, 1))
}

// node describes a node of a view, with its one address.
func node(v View, i int) any {
	n := v.Nodes[i]
	return struct {
		protocol.Address
		protocol.Agent
		Unreported bool
	}{n.Addresses[0], n.Agent, n.Unreported}
}

func visible(s protocol.State) View {
	s.Leaders = [protocol.MaxLeaders]protocol.Leader{}
	s.Blocks[0].Withdrawn = false
	return s
}

func oneOf(v protocol.Verb, some ...protocol.Verb) bool {
	for _, one := range some {
		if v == one {
			return true
		}
	}
	return false
}

// set contains different states, in the order of their addition.
type set struct {
	model  *protocol.Model
	known  map[protocol.Key]bool
	states []protocol.State
}

func newSet(m *protocol.Model) *set { return &set{model: m, known: map[protocol.Key]bool{}} }

func (s *set) add(state protocol.State) {
	if k := s.model.Key(&state); !s.known[k] {
		s.known[k] = true
		s.states = append(s.states, state)
	}
}
