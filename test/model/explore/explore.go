// Package explore visits every state of a model, however deep, and reports whether a rule
// breaks and whether all goals are reached. It does not know the model.
//
// States are visited breadth first, so the first history found to break a rule is a shortest
// one. They are stored whole and not as hashes: no state is mistaken for another.
package explore

import (
	"fmt"
	"math"
	"slices"
)

// System is a model: S is the type of its states, A that of the names of its steps.
type System[S, A comparable] struct {
	Start S
	// Next yields every step that is possible from a state, always in the same order, with the
	// state it leads to, and the rule that it breaks; "": none. A step without a change is
	// not possible.
	Next func(s S, yield func(a A, next S, broken string))
	// Canon returns the same state for all states that differ only in the names of equal
	// parts, such as two nodes. Nil: all states differ.
	Canon func(S) S
}

// Graph is the result of an exploration.
type Graph[S, A comparable] struct {
	// Transitions counts steps; Depth is the length of the longest of all shortest histories.
	Transitions, Depth int
	// Complete is true if every state was visited: no limit was reached, and no rule broke,
	// which ends the search.
	Complete bool
	// Broken is the rule that was broken; "": none. Story is a shortest history that ends with
	// the step that breaks it.
	Broken string
	Story  []Step[S, A]

	sys    System[S, A]
	known  *set[S]
	parent []uint32
}

// Step is a step of a history, and the state after it.
type Step[S, A comparable] struct {
	Action A
	State  S
}

// MaxStates is the largest limit.
const MaxStates = math.MaxUint32 - 1

// Explore visits every state, or at most limit states; 0: MaxStates.
func Explore[S, A comparable](sys System[S, A], limit int) *Graph[S, A] {
	if limit <= 0 || limit > MaxStates {
		limit = MaxStates
	}
	if sys.Canon == nil {
		sys.Canon = func(s S) S { return s }
	}
	g := &Graph[S, A]{sys: sys, known: newSet[S]()}
	g.known.add(sys.Canon(sys.Start))
	g.parent = append(g.parent, 0)
	for level, from := 0, 0; from < g.States(); level++ {
		g.Depth = level
		for to := g.States(); from < to; from++ {
			g.expand(uint32(from))
			if g.Broken != "" || g.States() >= limit {
				return g
			}
		}
	}
	g.Complete = true
	return g
}

// States returns the number of different states visited.
func (g *Graph[S, A]) States() int { return g.known.len() }

// expand takes each step from a state, until a step breaks a rule.
func (g *Graph[S, A]) expand(from uint32) {
	g.sys.Next(g.known.at(from), func(a A, next S, broken string) {
		if g.Broken != "" {
			return
		}
		g.Transitions++
		if broken != "" {
			g.Broken, g.Depth = broken, g.Depth+1
			g.Story = g.storyOf(from)
			g.Story = append(g.Story, g.repeat(g.last(), a, next))
			return
		}
		if _, fresh := g.known.add(g.sys.Canon(next)); fresh {
			g.parent = append(g.parent, from)
		}
	})
}

// storyOf returns a shortest history to a state. Names of equal parts stay the same
// throughout: it starts at the start and follows states that are equal to those visited.
func (g *Graph[S, A]) storyOf(i uint32) []Step[S, A] {
	var path []S
	for ; i != 0; i = g.parent[i] {
		path = append(path, g.known.at(i))
	}
	slices.Reverse(path)
	var story []Step[S, A]
	now := g.sys.Start
	for _, canon := range path {
		step, found := Step[S, A]{}, false
		g.sys.Next(now, func(a A, next S, _ string) {
			if !found && g.sys.Canon(next) == canon {
				step, found = Step[S, A]{a, next}, true
			}
		})
		if !found {
			panic(fmt.Sprintf("no step leads from %v to %v: Canon joins states that differ", now, canon))
		}
		story = append(story, step)
		now = step.State
	}
	return story
}

// last returns the last state of the story so far.
func (g *Graph[S, A]) last() S {
	if len(g.Story) == 0 {
		return g.sys.Start
	}
	return g.Story[len(g.Story)-1].State
}

// repeat finds the step that breaks the rule in the names of the story: from there,
// the same step of a visited state may have another name.
func (g *Graph[S, A]) repeat(from S, a A, next S) Step[S, A] {
	step, found := Step[S, A]{a, next}, false
	g.sys.Next(from, func(a A, next S, broken string) {
		if !found && broken == g.Broken {
			step, found = Step[S, A]{a, next}, true
		}
	})
	return step
}
