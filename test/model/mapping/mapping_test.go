package mapping

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/model/protocol"
)

// TestFollowsTheModel checks that runs of the model itself are explained, step by step, and
// that the state of the model is always among the explaining ones.
func TestFollowsTheModel(t *testing.T) {
	t.Run("addresses", func(t *testing.T) {
		follows(t, Model(false), protocol.Claims, protocol.Publishes, protocol.Removes, protocol.CoolsDown, protocol.Deletes, protocol.RestoresAll)
	})
	t.Run("whole blocks", func(t *testing.T) {
		follows(t, Model(true), protocol.Claims, protocol.Publishes, protocol.Returns, protocol.CoolsDown, protocol.Deletes)
	})
}

// follows also checks that the runs had steps of these kinds.
func follows(t *testing.T, model *protocol.Model, steps ...protocol.Verb) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	seen := map[protocol.Verb]bool{}
	for range 300 {
		x := New(model, View{})
		randomRun(model, r, 150, func(a protocol.Action, before, after protocol.State) bool {
			if err := report(x, a, visible(before), visible(after)); err != nil {
				t.Fatalf("%s: %v", a, err)
			}
			seen[a.Verb] = true
			if !slices.ContainsFunc(x.states, func(s protocol.State) bool { return visibleWith(s) == visibleWith(after) }) {
				t.Fatalf("after %s: %+v is none of the states that explain the run", a, after)
			}
			return true
		})
	}
	for _, v := range steps {
		if !seen[v] {
			t.Errorf("no run had a step of %s", v)
		}
	}
}

// randomRun takes random steps of a model while took returns true, and reports whether all did.
func randomRun(m *protocol.Model, r *rand.Rand, steps int, took func(a protocol.Action, before, after protocol.State) bool) bool {
	type step struct {
		protocol.Action
		protocol.State
	}
	var now protocol.State
	for range steps {
		var next []step
		m.Each(&now, func(a protocol.Action, after *protocol.State) { next = append(next, step{a, *after}) })
		to := next[r.IntN(len(next))]
		if !took(to.Action, now, to.State) {
			return false
		}
		now = to.State
	}
	return true
}

// visibleWith returns the observable part of a state, and the operations of its leaders.
func visibleWith(s protocol.State) protocol.State {
	s.Blocks[0].Withdrawn = false
	return s
}

// report passes a step of the model to a monitor as an observer sees it.
func report(x *Monitor, a protocol.Action, before, after View) error {
	switch a.Verb {
	case protocol.Publishes:
		if before == after { // all is published already: no write
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
	case protocol.Reports, protocol.RefusesLate, protocol.Returns:
		return x.AgentWritesNode(a.Node, after)
	case protocol.Dies:
		x.Dies(a.Leader)
	default:
		return x.Changes(after)
	}
	return nil
}

// TestRefuses checks that runs without a guard of the rules are refused: for each guard, the
// monitor finds a step that the model with all guards does not allow.
func TestRefuses(t *testing.T) {
	for _, g := range protocol.Protections() {
		if g.Progress {
			continue
		}
		t.Run(g.Name, func(t *testing.T) { refuses(t, Model(false), g.Guard) })
		if rule, _ := g.Whole(); rule != "" {
			t.Run("whole blocks, "+g.Name, func(t *testing.T) { refuses(t, Model(true), g.Guard) })
		}
	}
}

func refuses(t *testing.T, model *protocol.Model, without protocol.Guard) {
	t.Helper()
	c := model.Config
	c.Without = []protocol.Guard{without}
	open, err := protocol.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		x := New(model, View{})
		if !randomRun(open, r, 200, func(a protocol.Action, before, after protocol.State) bool {
			return report(x, a, visible(before), visible(after)) == nil
		}) {
			return
		}
	}
	t.Error("no run is refused")
}
