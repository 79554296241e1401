package explore

import (
	"fmt"
	"math"
	"slices"
)

// Fairness is the assumption about a step.
type Fairness int

const (
	// Chance steps may happen at any time, but not infinitely often: a crash, or an action of
	// people. Progress is only required once they have ceased.
	Chance Fairness = iota
	// Weak steps are eventually taken if they stay possible.
	Weak
	// Strong steps are eventually taken if they are possible again and again.
	Strong
)

// Goal is a condition that must not stay unmet.
type Goal[S any] struct {
	Name  string
	Unmet func(S) bool
}

// Stuck is an infinite, fair run that does not reach a goal.
type Stuck[S, A comparable] struct {
	Goal string
	// Story leads to where the loop begins, Loop continues from there and returns. An empty
	// loop means that the run has ended.
	Story, Loop []Step[S, A]
}

// Progress returns the goals that can stay unmet. It needs a complete search without Canon,
// which would hide that one of two equal parts is treated unfairly.
//
// A run is an infinite path, and may rest at a state for any time. It finally stays within
// a set of states that can all reach each other. So a goal can stay unmet if there is such a
// set, unmet in all its states, that is fair: each step of weak fairness is taken within it,
// or impossible in one of its states; each step of strong fairness is taken within it, or
// impossible in all of them.
func (g *Graph[S, A]) Progress(fairness func(A) Fairness, goals []Goal[S]) []Stuck[S, A] {
	p := g.newProgress(fairness)
	var out []Stuck[S, A]
	for _, goal := range goals {
		p.components(p.states(func(s S) bool { return goal.Unmet(s) }), func(c []uint32) bool {
			unfair := p.fairPart(c)
			if unfair == nil {
				return true
			}
			out = append(out, p.stuck(goal.Name, unfair))
			return false
		})
	}
	return out
}

// Settles checks whether steps of a kind eventually cease: it returns a fair run with such
// steps again and again, if there is one. It has the same requirements as Progress.
func (g *Graph[S, A]) Settles(name string, fairness func(A) Fairness, recurs func(A) bool) (Stuck[S, A], bool) {
	p := g.newProgress(fairness)
	var out Stuck[S, A]
	found := false
	p.components(p.states(func(S) bool { return true }), func(c []uint32) bool {
		part := p.fairPart(c)
		if part == nil {
			return true
		}
		found = p.within(part, func(label uint16) bool { return recurs(p.labels[label]) })
		if found {
			out = p.stuck(name, part)
		}
		return !found
	})
	return out, found
}

// progress has the steps between states, except for steps of chance.
type progress[S, A comparable] struct {
	*Graph[S, A]
	first  []uint32 // index of a state's steps in steps; one more at the end
	steps  []edge
	labels []A
	fair   []Fairness // by label

	order, low []uint32 // of Tarjan's search; 0: not visited, done: in a component
}

type edge struct {
	to    uint32
	label uint16
}

const done = math.MaxUint32

func (g *Graph[S, A]) newProgress(fairness func(A) Fairness) *progress[S, A] {
	if !g.Complete {
		panic("progress of a search that is not complete")
	}
	p := &progress[S, A]{Graph: g}
	numbers := map[A]uint16{}
	for i := range g.States() {
		p.first = append(p.first, uint32(len(p.steps)))
		g.sys.Next(g.known.at(uint32(i)), func(a A, next S, _ string) {
			of := fairness(a)
			if of == Chance {
				return
			}
			number, known := numbers[a]
			if !known {
				number = uint16(len(p.labels))
				numbers[a] = number
				p.labels, p.fair = append(p.labels, a), append(p.fair, of)
			}
			to, known := g.known.find(next)
			if !known {
				panic(fmt.Sprintf("progress of a search with Canon: %v was not visited", next))
			}
			p.steps = append(p.steps, edge{to, number})
		})
	}
	p.first = append(p.first, uint32(len(p.steps)))
	p.order, p.low = make([]uint32, g.States()), make([]uint32, g.States())
	return p
}

func (p *progress[S, A]) from(i uint32) []edge { return p.steps[p.first[i]:p.first[i+1]] }

func (p *progress[S, A]) states(in func(S) bool) func(uint32) bool {
	return func(i uint32) bool { return in(p.known.at(i)) }
}

// components calls visit with each maximal set of states that all reach each other and satisfy
// in, until visit returns false. It uses Tarjan's algorithm.
func (p *progress[S, A]) components(in func(uint32) bool, visit func([]uint32) bool) {
	clear(p.order)
	t := tarjan{order: p.order, low: p.low, in: in, visit: visit}
	for i := range uint32(p.States()) {
		if p.order[i] == 0 && in(i) && !t.search(i, p.from) {
			return
		}
	}
}

// tarjan is one search for components.
type tarjan struct {
	order, low []uint32
	next       uint32
	open       []uint32 // visited states; their component is not known yet
	path       []visiting
	in         func(uint32) bool
	visit      func([]uint32) bool
}

// visiting is a state on the path of the search, and its next step.
type visiting struct {
	state uint32
	step  int
}

func (t *tarjan) enter(i uint32) {
	t.next++
	t.order[i], t.low[i] = t.next, t.next
	t.open = append(t.open, i)
	t.path = append(t.path, visiting{i, 0})
}

// search visits all states that can be reached from a state.
func (t *tarjan) search(root uint32, from func(uint32) []edge) bool {
	t.enter(root)
	for len(t.path) > 0 {
		top := &t.path[len(t.path)-1]
		i, steps := top.state, from(top.state)
		if top.step < len(steps) {
			to := steps[top.step].to
			top.step++
			switch {
			case t.order[to] == done || !t.in(to):
			case t.order[to] == 0:
				t.enter(to)
			default:
				t.low[i] = min(t.low[i], t.order[to])
			}
			continue
		}
		t.path = t.path[:len(t.path)-1]
		if len(t.path) > 0 {
			below := t.path[len(t.path)-1].state
			t.low[below] = min(t.low[below], t.low[i])
		}
		if t.low[i] == t.order[i] && !t.leave(i) {
			return false
		}
	}
	return true
}

// leave passes the complete component of a state to visit.
func (t *tarjan) leave(root uint32) bool {
	begin := len(t.open) - 1
	for t.open[begin] != root {
		begin--
	}
	component := t.open[begin:]
	for _, i := range component {
		t.order[i] = done
	}
	t.open = t.open[:begin]
	return t.visit(component)
}

// fairPart returns a part of a component that a fair run can visit completely, again and again,
// without leaving it, or nil.
func (p *progress[S, A]) fairPart(component []uint32) []uint32 {
	in := membersOf(component)
	if alone := component[0]; len(component) == 1 && !slices.ContainsFunc(p.from(alone), func(e edge) bool { return e.to == alone }) {
		if len(p.from(alone)) > 0 {
			return nil // the common case: a run eventually leaves it
		}
		return []uint32{alone}
	}
	possible, taken := map[uint16]int{}, map[uint16]bool{}
	for _, i := range component {
		seen := map[uint16]bool{}
		for _, e := range p.from(i) {
			if !seen[e.label] {
				seen[e.label] = true
				possible[e.label]++
			}
			taken[e.label] = taken[e.label] || in(e.to)
		}
	}
	avoid := map[uint16]bool{}
	for label, n := range possible {
		switch {
		case taken[label]:
		case n == len(component): // it stays possible, and is never taken
			return nil
		case p.fair[label] == Strong:
			avoid[label] = true
		}
	}
	if len(avoid) == 0 {
		return slices.Clone(component)
	}
	return p.fairRest(slices.Clone(component), in, avoid)
}

// membersOf returns a function that reports whether a component contains a state.
func membersOf(component []uint32) func(uint32) bool {
	if len(component) == 1 {
		return func(i uint32) bool { return i == component[0] }
	}
	members := make(map[uint32]bool, len(component))
	for _, i := range component {
		members[i] = true
	}
	return func(i uint32) bool { return members[i] }
}

// fairRest calls fairPart for the rest of a component, without the states that allow one of some
// steps.
func (p *progress[S, A]) fairRest(component []uint32, in func(uint32) bool, avoid map[uint16]bool) []uint32 {
	rest := func(i uint32) bool {
		return in(i) && !slices.ContainsFunc(p.from(i), func(e edge) bool { return avoid[e.label] })
	}
	inner := &progress[S, A]{Graph: p.Graph, first: p.first, steps: p.steps, labels: p.labels, fair: p.fair,
		order: make([]uint32, p.States()), low: make([]uint32, p.States())}
	t := tarjan{order: inner.order, low: inner.low, in: rest}
	var found []uint32
	t.visit = func(c []uint32) bool {
		found = inner.fairPart(c)
		return found == nil
	}
	for _, i := range component {
		if inner.order[i] == 0 && rest(i) && !t.search(i, inner.from) {
			break
		}
	}
	return found
}

// within reports whether a step with one of some labels leads from one state of a component to
// another, or back to itself.
func (p *progress[S, A]) within(component []uint32, of func(uint16) bool) bool {
	in := membersOf(component)
	for _, i := range component {
		for _, e := range p.from(i) {
			if of(e.label) && in(e.to) {
				return true
			}
		}
	}
	return false
}

// stuck describes a component by a shortest history to it, and a path around it.
func (p *progress[S, A]) stuck(goal string, component []uint32) Stuck[S, A] {
	begin := slices.Min(component)
	return Stuck[S, A]{Goal: goal, Story: p.storyOf(begin), Loop: p.loop(begin, component)}
}

// loop returns a shortest path within a component from a state back to it.
func (p *progress[S, A]) loop(begin uint32, component []uint32) []Step[S, A] {
	in := membersOf(component)
	came := map[uint32]edge{} // the previous state and the step from it
	for queue := []uint32{begin}; len(queue) > 0; queue = queue[1:] {
		for _, e := range p.from(queue[0]) {
			if _, known := came[e.to]; known || !in(e.to) {
				continue
			}
			came[e.to] = edge{queue[0], e.label}
			queue = append(queue, e.to)
		}
		if _, back := came[begin]; back {
			break
		}
	}
	if _, back := came[begin]; !back {
		return nil
	}
	var out []Step[S, A]
	for i := begin; ; {
		e := came[i]
		out = append(out, Step[S, A]{p.labels[e.label], p.known.at(i)})
		if i = e.to; i == begin {
			break
		}
	}
	slices.Reverse(out)
	return out
}
