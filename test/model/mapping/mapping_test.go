package mapping

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/model/protocol"
)

// TestFollowsTheModel checks that runs of the model itself are explained, step by step, and
// that the state of the model is always among those that explain them.
func TestFollowsTheModel(t *testing.T) {
	model := Model()
	r := rand.New(rand.NewPCG(5, 6))
	seen := map[protocol.Verb]bool{}
	for range 300 {
		var now protocol.State
		x := New(model, now)
		for range 150 {
			type step struct {
				protocol.Action
				protocol.State
			}
			var next []step
			model.Each(&now, func(a protocol.Action, after *protocol.State) { next = append(next, step{a, *after}) })
			to := next[r.IntN(len(next))]
			if err := tell(x, to.Action, visible(now), visible(to.State)); err != nil {
				t.Fatalf("%s: %v", to.Action, err)
			}
			seen[to.Verb] = true
			if now = to.State; !slices.ContainsFunc(x.states, func(s protocol.State) bool { return visibleWith(s) == visibleWith(now) }) {
				t.Fatalf("after %s: %+v is none of the states that explain the run", to.Action, now)
			}
		}
	}
	for _, v := range []protocol.Verb{protocol.Claims, protocol.Publishes, protocol.Removes, protocol.CoolsDown, protocol.Deletes, protocol.RestoresAll} {
		if !seen[v] {
			t.Errorf("no run had a step of %s", v)
		}
	}
}

// visibleWith returns what is observable of a state, plus what its leaders have in hand.
func visibleWith(s protocol.State) protocol.State {
	s.Blocks[0].Withdrawn = false
	return s
}

// tell reports a step of the model to a monitor as it would be observed from outside.
func tell(x *Monitor, a protocol.Action, before, after View) error {
	switch a.Verb {
	case protocol.Publishes:
		if before == after { // nothing is left to publish: no write
			x.Begins(a.Leader)
			return nil
		}
		return x.LeaderWritesNode(a.Leader, a.Node, after)
	case protocol.Marks, protocol.Clears, protocol.Removes, protocol.Fences:
		return x.LeaderWritesNode(a.Leader, a.Node, after)
	case protocol.Claims, protocol.Deletes:
		return x.LeaderWritesBlock(a.Leader, false, after)
	case protocol.Drains, protocol.TakesBack, protocol.CoolsDown:
		return x.LeaderWritesBlock(protocol.NoLeader, false, after)
	case protocol.ReadsBlock:
		x.ReadsBlock(a.Leader)
	case protocol.ReadsNode:
		x.ReadsNode(a.Leader)
	case protocol.Reports, protocol.RefusesLate:
		return x.AgentWritesNode(a.Node, after)
	case protocol.Dies:
		x.Dies(a.Leader)
	default:
		return x.Changes(after)
	}
	return nil
}

// run is a simulated run, as a Monitor observes it.
type run struct {
	x   *Monitor
	now View
	err error
}

func (r *run) change(what func(v *View)) View {
	what(&r.now)
	return r.now
}

func (r *run) block(leader int, what func(b *protocol.Block)) {
	r.note(r.x.LeaderWritesBlock(leader, false, r.change(func(v *View) { what(&v.Blocks[0]) })))
}

func (r *run) node(leader int, what func(a *protocol.Address)) {
	r.note(r.x.LeaderWritesNode(leader, 0, r.change(func(v *View) { what(&v.Nodes[0].Addresses[0]) })))
}

func (r *run) agent(what func(n *protocol.Node)) {
	r.note(r.x.Changes(r.change(func(v *View) { what(&v.Nodes[0]) })))
}

func (r *run) reports(entry protocol.Entry, unreported bool) {
	r.note(r.x.AgentWritesNode(0, r.change(func(v *View) {
		v.Nodes[0].Addresses[0].Entry, v.Nodes[0].Unreported = entry, unreported
	})))
}

func (r *run) note(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *run) claim(leader int) {
	r.block(leader, func(b *protocol.Block) { *b = protocol.Block{Owner: 1} })
}

func (r *run) phase(p protocol.Phase) {
	r.block(0, func(b *protocol.Block) { b.Phase, b.Cooled = p, false })
}

func (r *run) publish(leader int) { r.node(leader, func(a *protocol.Address) { a.Published = true }) }
func (r *run) mark()              { r.node(0, func(a *protocol.Address) { a.Entry = protocol.Marked }) }
func (r *run) remove()            { r.node(0, func(a *protocol.Address) { a.Published = false }) }
func (r *run) clear()             { r.node(0, func(a *protocol.Address) { a.Entry = protocol.NoEntry }) }
func (r *run) touch(leader int)   { r.node(leader, func(*protocol.Address) {}) }

func (r *run) cooled() {
	r.note(r.x.Changes(r.change(func(v *View) { v.Blocks[0].Cooled = true })))
}

func (r *run) deleted(leader int) {
	r.block(leader, func(b *protocol.Block) { *b = protocol.Block{} })
}

// inService runs up to where a block is published.
func (r *run) inService() {
	r.claim(0)
	r.publish(0)
}

// cooling runs up to where the block cools down, with the last entry deleted by leader 0.
func (r *run) cooling() {
	r.inService()
	r.phase(protocol.Draining)
	r.mark()
	r.reports(protocol.Ready, false)
	r.remove()
	r.phase(protocol.CoolingDown)
	r.clear()
}

// fenced runs up to where a block that was never published cools down, and leader 0 has marked
// its address to change the version.
func (r *run) fenced() {
	r.claim(0)
	r.phase(protocol.Draining)
	r.phase(protocol.CoolingDown)
	r.mark()
}

// TestRefuses checks that a step that the model does not allow is found, and no step before
// it.
func TestRefuses(t *testing.T) {
	for name, do := range map[string]struct{ before, wrong func(*run) }{
		"published without a claim":       {func(*run) {}, func(r *run) { r.publish(0) }},
		"published after another's write": {func(r *run) { r.claim(0); r.touch(1) }, func(r *run) { r.publish(0) }},
		"published by one who has died":   {func(r *run) { r.claim(0); r.x.Dies(0) }, func(r *run) { r.publish(0) }},
		"published by a later reconcile, unread": {
			func(r *run) { r.claim(0); r.x.Begins(0) }, func(r *run) { r.publish(0) },
		},
		"published after a read and another's write": {
			func(r *run) { r.claim(0); r.x.ReadsBlock(1); r.touch(0) }, func(r *run) { r.publish(1) },
		},
		"read while it cools down, and published": {
			func(r *run) {
				r.claim(0)
				r.phase(protocol.Draining)
				r.phase(protocol.CoolingDown)
				r.touch(0)
				r.x.ReadsBlock(1)
			}, func(r *run) { r.publish(1) },
		},
		"published over the mark of a fence": {
			func(r *run) { r.fenced(); r.phase(protocol.InService); r.x.ReadsBlock(0) }, func(r *run) { r.publish(0) },
		},
		"claimed and published over the mark of a fence": {
			func(r *run) { r.fenced(); r.cooled(); r.x.ReadsNode(0); r.deleted(0); r.claim(0) }, func(r *run) { r.publish(0) },
		},
		"removed unmarked": {(*run).inService, func(r *run) { r.remove() }},
		"removed unanswered": {
			func(r *run) { r.inService(); r.phase(protocol.Draining); r.mark() }, func(r *run) { r.remove() },
		},
		"removed unreported": {
			func(r *run) {
				r.inService()
				r.phase(protocol.Draining)
				r.mark()
				r.agent(func(n *protocol.Node) { n.Agent = protocol.Down })
				r.agent(func(n *protocol.Node) { n.Agent = protocol.Opened })
				r.reports(protocol.Ready, true)
			}, func(r *run) { r.remove() },
		},
		"ready for release while a pod has it": {
			func(r *run) {
				r.inService()
				r.agent(func(n *protocol.Node) { n.Addresses[0].Pod = true })
				r.mark()
			}, func(r *run) { r.reports(protocol.Ready, false) },
		},
		"given to a pod though ready for release": {
			func(r *run) { r.inService(); r.mark(); r.reports(protocol.Ready, false) },
			func(r *run) { r.agent(func(n *protocol.Node) { n.Addresses[0].Pod = true }) },
		},
		"claimed though it is there": {
			(*run).inService, func(r *run) { r.block(1, func(b *protocol.Block) { b.Owner = 2 }) },
		},
		"cools down from service": {func(r *run) { r.claim(0) }, func(r *run) { r.phase(protocol.CoolingDown) }},
		"deleted from service":    {func(r *run) { r.claim(0); r.touch(0); r.x.ReadsNode(0) }, func(r *run) { r.deleted(0) }},
		"deleted too early":       {func(r *run) { r.cooling(); r.x.ReadsNode(0) }, func(r *run) { r.deleted(0) }},
		"deleted unread":          {func(r *run) { r.cooling(); r.cooled() }, func(r *run) { r.deleted(0) }},
		"deleted without a fence": {
			func(r *run) { r.cooling(); r.cooled(); r.x.ReadsNode(1) }, func(r *run) { r.deleted(1) },
		},
		"deleted after another wrote the block": {
			func(r *run) {
				r.cooling()
				r.cooled()
				r.x.ReadsNode(0)
				r.note(r.x.LeaderWritesBlock(1, false, r.now))
			}, func(r *run) { r.deleted(0) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{x: New(Model(), View{})}
			if do.before(r); r.err != nil {
				t.Fatalf("before: %v", r.err)
			}
			if do.wrong(r); r.err == nil {
				t.Error("it is taken for a step of the model")
			}
		})
	}
}

// TestAllows checks that what the operator does in the same places is allowed.
func TestAllows(t *testing.T) {
	for name, do := range map[string]func(*run){
		"deleted": func(r *run) { r.cooling(); r.cooled(); r.x.ReadsNode(0); r.deleted(0) },
		"deleted by another, which fences": func(r *run) {
			r.cooling()
			r.cooled()
			r.x.ReadsNode(1)
			r.touch(1)
			r.deleted(1)
		},
		"deleted once its own finalizer is gone": func(r *run) {
			r.cooling()
			r.cooled()
			r.x.ReadsNode(0)
			r.note(r.x.LeaderWritesBlock(0, true, r.now))
			r.deleted(0)
		},
		"published by another who has read it": func(r *run) { r.claim(0); r.x.ReadsBlock(1); r.publish(1) },
		"published late, then drained again": func(r *run) {
			r.claim(0)
			r.phase(protocol.Draining)
			r.phase(protocol.CoolingDown)
			r.publish(0)
			r.phase(protocol.Draining)
		},
		"fenced again by a leader that has had no answer": func(r *run) {
			r.fenced()
			r.clear()
			r.mark()
		},
		"fenced by a leader that has not been shown that the block is gone": func(r *run) {
			r.fenced()
			r.clear()
			r.cooled()
			r.x.ReadsNode(0)
			r.deleted(0)
			r.mark()
		},
		"refused by an agent that has yet to open": func(r *run) {
			r.fenced()
			r.agent(func(n *protocol.Node) { n.Agent = protocol.Down })
			r.reports(protocol.Refused, true)
		},
		"claimed again once the mark of a fence is gone": func(r *run) {
			r.fenced()
			r.cooled()
			r.x.ReadsNode(0)
			r.deleted(0)
			r.clear()
			r.claim(0)
			r.publish(0)
		},
		"made by a person": func(r *run) {
			r.x.PeopleWriteBlock(r.change(func(v *View) { v.Blocks[0] = protocol.Block{Owner: 2, Phase: protocol.Draining} }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{x: New(Model(), View{})}
			if do(r); r.err != nil {
				t.Error(r.err)
			}
		})
	}
}
