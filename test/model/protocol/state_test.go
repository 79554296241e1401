package protocol

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/model/explore"
)

// configs returns instances with every kind of equal parts, and of every policy.
func configs() map[string]Config {
	out := map[string]Config{}
	for name, c := range map[string]Config{
		"blocks":    {Nodes: 2, Blocks: 2, Addresses: 1, Leaders: 2},
		"addresses": {Nodes: 2, Blocks: 2, Addresses: 2, Leaders: 2},
		"leaders":   {Nodes: 2, Blocks: 3, Addresses: 1, Leaders: 3},
	} {
		c.Cilium = AsShipped()
		out[name] = c
		c.OldCaches, c.Without = true, []Guard{PatchIsConditional, DeleteIsConditional}
		out[name+", without guards"] = c
		c.OldCaches, c.Without, c.Thresholds = false, nil, true
		out[name+", thresholds"] = c
		if c.Addresses == 1 {
			c.Whole = true
			out[name+", whole"] = c
		}
	}
	return out
}

// walk calls visit for states on random walks.
func walk(t *testing.T, c Config, visit func(*Model, *rand.Rand, Key)) {
	t.Helper()
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		now := m.System(false).Start
		for range 100 {
			visit(m, r, now)
			var next []Key
			m.next(now, func(_ Action, to Key, _ string) { next = append(next, to) })
			if len(next) == 0 {
				break
			}
			now = next[r.IntN(len(next))]
		}
	}
}

func TestKeyHoldsAll(t *testing.T) {
	for name, c := range configs() {
		t.Run(name, func(t *testing.T) {
			walk(t, c, func(m *Model, _ *rand.Rand, k Key) {
				s := k.State()
				if again := s.key(&m.plain); again != k {
					t.Fatalf("%x reads as %+v, which is %x", k, s, again)
				}
				m.next(k, func(a Action, to Key, _ string) {
					if to == k {
						t.Fatalf("%s changes %+v, but not its key", a, s)
					}
				})
			})
		})
	}
}

// TestLongEqualStatesAreOne checks that the canonical form of a state does not depend on how
// its parts are numbered, and neither do its next steps.
func TestLongEqualStatesAreOne(t *testing.T) {
	for name, c := range configs() {
		t.Run(name, func(t *testing.T) {
			walk(t, c, func(m *Model, r *rand.Rand, k Key) {
				s := k.State()
				renaming := m.renamings[r.IntN(len(m.renamings))]
				other := s.key(&renaming)
				if m.canon(other) != m.canon(k) || m.canon(m.canon(k)) != m.canon(k) {
					t.Fatalf("%+v and %+v are taken for different states", s, other.State())
				}
				if a, b := m.after(k), m.after(other); !maps.Equal(a, b) {
					t.Fatalf("what can follow %+v is not what can follow %+v", s, other.State())
				}
			})
		})
	}
}

// leads returns the next state after an action, or the zero Key.
func (m *Model) leads(from Key, by Action) (to Key) {
	m.next(from, func(a Action, next Key, _ string) {
		if a == by {
			to = next
		}
	})
	return to
}

// after counts the steps to each state that can follow.
func (m *Model) after(k Key) map[Key]int {
	out := map[Key]int{}
	m.next(k, func(_ Action, to Key, _ string) { out[m.canon(to)]++ })
	return out
}

// TestEqualPartsChangeNoVerdict explores small instances with every state separately, and with
// equal states as one. Both stories of a broken rule are as short, and have only steps of the model.
func TestEqualPartsChangeNoVerdict(t *testing.T) {
	for name, c := range map[string]Config{
		"holds":        {Nodes: 2, Blocks: 1, Addresses: 1, Leaders: 2, Cilium: AsShipped()},
		"thresholds":   {Nodes: 2, Blocks: 1, Addresses: 1, Leaders: 1, Cilium: AsShipped(), Thresholds: true},
		"broken":       {Nodes: 2, Blocks: 1, Addresses: 1, Leaders: 2, Cilium: AsShipped(), Without: []Guard{Fence}},
		"not restored": {Nodes: 1, Blocks: 2, Addresses: 1, Leaders: 1, Cilium: AsShipped(), Rules: []Rule{Restored}},
	} {
		m, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		all, equal := explore.Explore(m.System(false), 0), explore.Explore(m.System(true), 0)
		for _, g := range []*explore.Graph[Key, Action]{all, equal} {
			now := m.System(false).Start
			for i, step := range g.Story {
				if m.leads(now, step.Action) != step.State {
					t.Errorf("%s: step %d of the story, %v, does not lead from %+v to %+v", name, i+1, step.Action, now.State(), step.State.State())
				}
				now = step.State
			}
		}
		if all.Broken != equal.Broken || all.Depth != equal.Depth || len(all.Story) != len(equal.Story) {
			t.Errorf("%s: %q broken at depth %d, and with equal states as one %q at %d", name, all.Broken, all.Depth, equal.Broken, equal.Depth)
		}
		if most := len(m.renamings) * 2 * c.Leaders; all.Complete && (equal.States() >= all.States() || all.States() > equal.States()*most) {
			t.Errorf("%s: %d states, and with equal ones as one %d", name, all.States(), equal.States())
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]Config{
		"nothing":        {},
		"many nodes":     {Nodes: 3, Blocks: 1, Addresses: 1, Leaders: 1},
		"many addresses": {Nodes: 2, Blocks: 3, Addresses: 2, Leaders: 1},
		"fence marks":    {Nodes: 1, Blocks: 1, Addresses: 2, Leaders: 1, FenceMarks: true},
		"whole blocks":   {Nodes: 1, Blocks: 1, Addresses: 2, Leaders: 1, Whole: true},
		"progress":       {Nodes: 1, Blocks: 1, Addresses: 1, Leaders: 1, FenceMarks: true, Thresholds: true},
		"many leaders":   {Nodes: 2, Blocks: 1, Addresses: 1, Leaders: 5},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: an instance that does not fit is accepted", name)
		}
	}
}

// TestProtections checks that each guard is listed once, so that one row switches it off, and
// belongs to a function of the operator.
func TestProtections(t *testing.T) {
	code := ""
	for _, folder := range []string{"expand", "state", "ciliumnode", "controller/node"} {
		files, err := filepath.Glob("../../../pkg/" + folder + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("no code in pkg/%s: %v", folder, err)
		}
		for _, file := range files {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code += string(body)
		}
	}
	listed := map[Guard]int{}
	for _, p := range Protections() {
		if !regexp.MustCompile(`(?m)^func (\(.*\) )?` + p.Where + `\(`).MatchString(code) {
			t.Errorf("%s: the operator has no function %s", p.Name, p.Where)
		}
	}
	for _, p := range Protections() {
		listed[p.Guard]++
	}
	for g := range guards {
		if listed[g] != 1 {
			t.Errorf("guard %d is listed %d times", g, listed[g])
		}
	}
}
