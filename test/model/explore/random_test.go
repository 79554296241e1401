package explore

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// arc is a step of a random graph, with one of a few labels.
type arc struct{ from, to, label int }

// random is a graph of a few states. Some do not meet the goal.
type random struct {
	states int
	arcs   []arc
	fair   []Fairness // by label
	unmet  uint       // set of states
}

func newRandom(r *rand.Rand) random {
	g := random{states: 1 + r.IntN(7), unmet: uint(r.Uint32())}
	for range 1 + r.IntN(4) {
		g.fair = append(g.fair, Fairness(r.IntN(3)))
	}
	for range r.IntN(3 * g.states) {
		a := arc{r.IntN(g.states), r.IntN(g.states), r.IntN(len(g.fair))}
		if !slices.Contains(g.arcs, a) {
			g.arcs = append(g.arcs, a)
		}
	}
	return g
}

func (g random) system() System[int, int] {
	return System[int, int]{Next: func(s int, yield func(int, int, string)) {
		for _, a := range g.arcs {
			if a.from == s {
				yield(a.label, a.to, "")
			}
		}
	}}
}

// reached returns the states that can be reached from one, within a set, either by all steps
// or only by steps that are not chance.
func (g random) reached(from int, within uint, chance bool) uint {
	known := uint(1) << from
	for again := true; again; {
		again = false
		for _, a := range g.arcs {
			if known>>a.from&1 == 1 && within>>a.to&1 == 1 && known>>a.to&1 == 0 && (chance || g.fair[a.label] != Chance) {
				known |= 1 << a.to
				again = true
			}
		}
	}
	return known
}

// stays reports, by the definition, whether a fair run can visit exactly these states again
// and again. A run may rest, so one state is enough for it.
func (g random) stays(set uint) bool {
	for i := range g.states {
		if set>>i&1 == 1 && g.reached(i, set, false)&set != set {
			return false
		}
	}
	for label, fair := range g.fair {
		possible, taken := uint(0), false
		for _, a := range g.arcs {
			if a.label == label && set>>a.from&1 == 1 {
				possible |= 1 << a.from
				taken = taken || set>>a.to&1 == 1
			}
		}
		switch {
		case taken || fair == Chance:
		case fair == Weak && possible == set, fair == Strong && possible != 0:
			return false
		}
	}
	return true
}

// stuck tries every set of states that do not meet the goal.
func (g random) stuck() bool {
	all := g.reached(0, 1<<g.states-1, true)
	for set := uint(1); set < 1<<g.states; set++ {
		if set&^(all&g.unmet) == 0 && g.stays(set) {
			return true
		}
	}
	return false
}

// TestProgressByDefinition compares Progress with a search through all sets of states of random
// graphs, which follows the definition, without components.
func TestProgressByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found, cases := 0, 20000
	for range cases {
		g := newRandom(r)
		sys := g.system()
		graph := Explore(sys, 0)
		if want := bits.OnesCount(g.reached(0, 1<<g.states-1, true)); graph.States() != want {
			t.Fatalf("%+v: %d states found of %d", g, graph.States(), want)
		}
		stuck := graph.Progress(func(label int) Fairness { return g.fair[label] },
			[]Goal[int]{{"goal", func(s int) bool { return g.unmet>>s&1 == 1 }}})
		want := g.stuck()
		if (len(stuck) > 0) != want {
			t.Fatalf("%+v: stuck is %v, by definition %v", g, stuck, want)
		}
		for _, s := range stuck {
			found++
			now := sys.Start
			for _, step := range append(s.Story, s.Loop...) {
				if !leads(sys, now, step) {
					t.Fatalf("%+v: %v is no step from %d", g, step, now)
				}
				now = step.State
			}
		}
	}
	if found < cases/10 || found > cases*9/10 {
		t.Errorf("%d of %d graphs were stuck: the cases are no good", found, cases)
	}
}
