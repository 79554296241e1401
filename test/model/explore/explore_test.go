package explore

import "testing"

// leads reports whether a system has a step.
func leads[S, A comparable](sys System[S, A], from S, step Step[S, A]) bool {
	found := false
	sys.Next(from, func(a A, next S, _ string) { found = found || a == step.Action && next == step.State })
	return found
}

// TestSettles checks that a run settles unless a fair one may take counted steps forever.
func TestSettles(t *testing.T) {
	for name, c := range map[string]struct {
		fair    Fairness // of the step back to the start
		settles bool
	}{
		"a step back that must be taken": {Weak, false}, "a step back that need not be": {Chance, true},
	} {
		g := random{states: 2, arcs: []arc{{0, 1, 0}, {1, 0, 1}}, fair: []Fairness{Weak, c.fair}}
		_, found := Explore(g.system(), 0).Settles("steps", func(label int) Fairness { return g.fair[label] }, func(label int) bool { return label == 0 })
		if found == c.settles {
			t.Errorf("%s: found a run without end: %v", name, found)
		}
	}
}
