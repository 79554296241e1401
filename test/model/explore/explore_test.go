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

// TestPhilosophers counts tables. A table is a circular word in which "eats" is followed by
// "thinks". By the trace of the transfer matrix there are (1+√2)ⁿ + (1-√2)ⁿ of them, the
// Pell–Lucas numbers.
func TestPhilosophers(t *testing.T) {
	want := map[int]int{2: 6, 3: 14, 4: 34, 5: 82, 6: 198}
	for n, states := range want {
		if got := Explore(philosophers(n), 0).States(); got != states {
			t.Errorf("%d philosophers have %d states, want %d", n, got, states)
		}
	}
}

// TestEqualPhilosophers keeps one of the tables that differ by a rotation. By Burnside's lemma
// 5 philosophers have (82+4·2)/5 such tables, 4 have (34+6+2·2)/4, and 3 (14+2·2)/3.
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

// TestDeadlockIsNoProgress checks that philosophers who all hold their left fork never eat
// again, however fair the steps are.
func TestDeadlockIsNoProgress(t *testing.T) {
	const n = 4
	g := Explore(philosophers(n), 0)
	stuck := g.Progress(func(int) Fairness { return Strong }, []Goal[table]{
		{"a deadlock ends", func(s table) bool { return allHoldLeft(s, n) }},
	})
	if len(stuck) != 1 || len(stuck[0].Story) != n || len(stuck[0].Loop) != 0 {
		t.Errorf("stuck: %v; want a story of %d steps, after which nothing happens", stuck, n)
	}
}

// mutex is the state of two processes that take turns in a critical section.
type mutex struct {
	at    [2]place
	flag  [2]bool
	turn  int
	taken bool
}

type place int

const (
	idle place = iota
	flagged
	waits
	critical
)

type move struct {
	process int
	from    place
}

// peterson implements Peterson's algorithm, with a step for each access to a shared variable.
func peterson(s mutex, i int) (mutex, bool) {
	switch s.at[i] {
	case idle:
		s.flag[i], s.at[i] = true, flagged
	case flagged:
		s.turn, s.at[i] = 1-i, waits
	case waits:
		if s.flag[1-i] && s.turn != i {
			return s, false
		}
		s.at[i] = critical
	case critical:
		s.flag[i], s.at[i] = false, idle
	}
	return s, true
}

// testThenSet checks the other's flag before it sets its own: the planted fault.
func testThenSet(s mutex, i int) (mutex, bool) {
	switch s.at[i] {
	case idle:
		if s.flag[1-i] {
			return s, false
		}
		s.at[i] = flagged
	case flagged:
		s.flag[i], s.at[i] = true, critical
	case critical:
		s.flag[i], s.at[i] = false, idle
	}
	return s, true
}

// lock acquires a lock in a single step.
func lock(s mutex, i int) (mutex, bool) {
	switch s.at[i] {
	case idle:
		s.at[i] = waits
	case waits:
		if s.taken {
			return s, false
		}
		s.taken, s.at[i] = true, critical
	case critical:
		s.taken, s.at[i] = false, idle
	}
	return s, true
}

func processes(step func(mutex, int) (mutex, bool)) System[mutex, move] {
	return System[mutex, move]{Next: func(s mutex, yield func(move, mutex, string)) {
		for i := range 2 {
			next, possible := step(s, i)
			if !possible {
				continue
			}
			broken := ""
			if next.at == [2]place{critical, critical} {
				broken = "exclusion"
			}
			yield(move{i, s.at[i]}, next, broken)
		}
	}}
}

func TestExclusion(t *testing.T) {
	if g := Explore(processes(peterson), 0); g.Broken != "" || !g.Complete || g.States() != naively(processes(peterson)) {
		t.Errorf("Peterson's algorithm: %q broken; %d states, by a naive search %d", g.Broken, g.States(), naively(processes(peterson)))
	}
	if g := Explore(processes(testThenSet), 0); g.Broken != "exclusion" || len(g.Story) != 4 {
		t.Errorf("test, then set: %q broken by %v; want exclusion, by 4 steps", g.Broken, g.Story)
	}
}

// naively counts the states by recursion and a map.
func naively[S, A comparable](sys System[S, A]) int {
	known := map[S]bool{}
	var visit func(S)
	visit = func(s S) {
		if known[s] {
			return
		}
		known[s] = true
		sys.Next(s, func(_ A, next S, _ string) { visit(next) })
	}
	visit(sys.Start)
	return len(known)
}

// TestStarvation checks that a waiting process enters, with Peterson's algorithm under weak
// fairness, with a lock only under strong fairness; but not if the other one may stay in
// forever.
func TestStarvation(t *testing.T) {
	enters := []Goal[mutex]{{"0 enters", func(s mutex) bool { return s.at[0] == waits }}}
	stays := func(m move) Fairness {
		if m == (move{1, critical}) {
			return Chance
		}
		return Weak
	}
	free := func(m move) Fairness { // no process has to enter
		if m.from == idle {
			return Chance
		}
		return Weak
	}
	all := func(f Fairness) func(move) Fairness { return func(move) Fairness { return f } }
	for name, c := range map[string]struct {
		of     System[mutex, move]
		fair   func(move) Fairness
		stuck  bool
		looped int // steps of the loop in which 0 starves
	}{
		"Peterson, weak":               {processes(peterson), all(Weak), false, 0},
		"Peterson, the other stays in": {processes(peterson), stays, true, 0},
		"lock, weak":                   {processes(lock), all(Weak), true, 3},
		"lock, strong":                 {processes(lock), all(Strong), false, 0},
		"lock, none wants in any more": {processes(lock), free, false, 0},
	} {
		stuck := Explore(c.of, 0).Progress(c.fair, enters)
		if (len(stuck) > 0) != c.stuck || c.stuck && len(stuck[0].Loop) != c.looped {
			t.Errorf("%s: stuck in %v; want %v, in a loop of %d steps", name, stuck, c.stuck, c.looped)
		}
	}
}

// TestSettles checks that two processes that take turns never settle, but do once neither
// wants to enter any more.
func TestSettles(t *testing.T) {
	enters := func(m move) bool { return m.from == waits }
	g := Explore(processes(peterson), 0)
	if _, found := g.Settles("entries", func(move) Fairness { return Weak }, enters); !found {
		t.Error("two processes that enter again and again are taken for settled")
	}
	wanted := func(m move) Fairness {
		if m.from == idle {
			return Chance
		}
		return Weak
	}
	if s, found := g.Settles("entries", wanted, enters); found {
		t.Errorf("once neither wants in, they enter without end: %v", s)
	}
}
