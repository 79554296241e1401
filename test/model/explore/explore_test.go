package explore

import (
	"fmt"
	"slices"
	"testing"
)

// grid returns a system of two counters that count up to their sizes: as many states as the
// product.
func grid(sizes [2]int) System[[2]int, string] {
	return System[[2]int, string]{Next: func(s [2]int, yield func(string, [2]int, string)) {
		for i, size := range sizes {
			if next := s; next[i] < size-1 {
				next[i]++
				yield(fmt.Sprint("counter ", i), next, "")
			}
		}
	}}
}

func TestCountsStates(t *testing.T) {
	for _, sizes := range [][2]int{{1, 1}, {2, 3}, {300, 400}} {
		g := Explore(grid(sizes), 0)
		n, m := sizes[0], sizes[1]
		got := [3]int{g.States(), g.Transitions, g.Depth}
		if want := [3]int{n * m, (n-1)*m + n*(m-1), n + m - 2}; got != want || !g.Complete {
			t.Errorf("%v: states, transitions and depth are %v, complete %v; want %v", sizes, got, g.Complete, want)
		}
	}
}

func TestLimit(t *testing.T) {
	if g := Explore(grid([2]int{10, 10}), 50); g.Complete || g.States() != 50 {
		t.Errorf("a search with a limit of 50 has %d states, complete %v", g.States(), g.Complete)
	}
}

// States of the philosophers around a table, each thinking, holding its left fork, or eating.
const (
	thinks = iota
	holdsLeft
	eats
)

type table [6]uint8

// philosophers take the left fork first, then the right one, which is the left one of the
// next, and return both at once.
func philosophers(n int) System[table, int] {
	return System[table, int]{Next: func(s table, yield func(int, table, string)) {
		for i := range n {
			before, after, next := s[(i+n-1)%n], s[(i+1)%n], s
			switch {
			case s[i] == thinks && before != eats:
				next[i] = holdsLeft
			case s[i] == holdsLeft && after == thinks:
				next[i] = eats
			case s[i] == eats:
				next[i] = thinks
			default:
				continue
			}
			yield(i, next, "")
		}
	}}
}

// TestEqualPhilosophers keeps one of the tables that differ by a rotation. There
// are 14, 34 and 82 of 3, 4 and 5 philosophers; by Burnside's lemma (14+2·2)/3, (34+6+2·2)/4 and
// (82+4·2)/5 are left.
func TestEqualPhilosophers(t *testing.T) {
	for n, states := range map[int]int{3: 6, 4: 11, 5: 18} {
		g := Explore(turned(n, ""), 0)
		if got := g.States(); got != states || !g.Complete {
			t.Errorf("%d philosophers have %d states up to turns, want %d", n, got, states)
		}
	}
}

// turned returns philosophers for whom tables that differ by a rotation are the same. If rule
// is not empty, it is broken when all hold their left fork.
func turned(n int, rule string) System[table, int] {
	sys := philosophers(n)
	plain := sys.Next
	sys.Next = func(s table, yield func(int, table, string)) {
		plain(s, func(a int, next table, _ string) {
			broken := ""
			if allHoldLeft(next, n) {
				broken = rule
			}
			yield(a, next, broken)
		})
	}
	sys.Canon = func(s table) table {
		least := s
		for i := range n {
			other := s
			for j := range n {
				other[j] = s[(i+j)%n]
			}
			if slices.Compare(other[:], least[:]) < 0 {
				least = other
			}
		}
		return least
	}
	return sys
}

func allHoldLeft(s table, n int) bool {
	for _, x := range s[:n] {
		if x != holdsLeft {
			return false
		}
	}
	return true
}

// TestShortestStory finds the story in which all take their left fork, which takes no fewer
// steps. Its steps are real ones, in which each philosopher keeps its own place.
func TestShortestStory(t *testing.T) {
	const n = 5
	for name, sys := range map[string]System[table, int]{"turned": turned(n, "deadlock"), "plain": turned(n, "deadlock")} {
		if name == "plain" {
			sys.Canon = nil
		}
		g := Explore(sys, 0)
		if g.Broken != "deadlock" || len(g.Story) != n || g.Depth != n || g.Complete {
			t.Fatalf("%s: broken %q after %d steps, want a deadlock after %d", name, g.Broken, len(g.Story), n)
		}
		now := sys.Start
		for i, step := range g.Story {
			if !leads(sys, now, step) {
				t.Fatalf("%s: step %d of the story, %v, is none of %v", name, i+1, step, now)
			}
			now = step.State
		}
		if !allHoldLeft(now, n) {
			t.Errorf("%s: the story ends with %v", name, now)
		}
	}
}

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
