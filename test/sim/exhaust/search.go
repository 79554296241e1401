package main

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// key tells states apart: the first half of a SHA-256.
type key [16]byte

// state is one that was reached, as the step that led to it first.
type state struct {
	from   int32 // index of the state before; -1: none
	action uint16
}

// search goes through all that can happen in a scope, the shortest histories
// first. As a world cannot be copied, each step begins with a new world in which
// the history so far happens again.
type search struct {
	scope  scope
	depth  int
	states int // bound; 0: none
	// make replays a history. A test puts another one here, to see that the
	// search finds what is wrong.
	make func([]world.Action) *world.World
	// tick is called after each state, with whether its level is done.
	tick func(done bool)

	prelude []world.Action
	known   map[key]struct{}
	tree    []state
	actions []world.Action
	numbers map[world.Action]uint16

	figures figures
	found   *violation
}

// figures are what was tried.
type figures struct {
	level, states, transitions, again int
	full                              bool // the bound on states was met
	took                              time.Duration
}

// violation is the shortest history, after the prelude, that breaks a rule.
type violation struct {
	actions []world.Action
	text    string
}

func newSearch(s scope, depth, states int) *search {
	w, prelude := s.begin(nil)
	if len(w.Violations) > 0 {
		panic(fmt.Sprintf("scope %s: a rule breaks before it begins: %v", s.name, w.Violations))
	}
	w.Close()
	x := &search{
		scope: s, depth: depth, states: states, prelude: prelude,
		known: map[key]struct{}{}, numbers: map[world.Action]uint16{}, tick: func(bool) {},
	}
	x.make = func(actions []world.Action) *world.World { return s.replay(prelude, actions) }
	return x
}

// run searches, level by level, until a rule breaks.
func (x *search) run() {
	begun := time.Now()
	defer func() { x.figures.took = time.Since(begun) }()
	root := x.make(nil)
	x.add(-1, world.Action{}, x.key(root, nil))
	root.Close()
	for level, from := 1, 0; level <= x.depth && x.found == nil && !x.figures.full; level++ {
		to := len(x.tree)
		if from == to {
			return // nothing new was reached: this is all there is
		}
		x.figures.level = level
		for ; from < to && x.found == nil && !x.figures.full; from++ {
			x.expand(int32(from))
			x.figures.took = time.Since(begun)
			x.tick(from == to-1)
		}
	}
}

func (x *search) add(from int32, a world.Action, k key) {
	n, ok := x.numbers[a]
	if !ok {
		n = uint16(len(x.actions))
		x.numbers[a] = n
		x.actions = append(x.actions, a)
	}
	x.known[k] = struct{}{}
	x.tree = append(x.tree, state{from, n})
	x.figures.states++
	x.figures.full = x.states > 0 && x.figures.states >= x.states
}

// history is how a state was reached.
func (x *search) history(i int32) []world.Action {
	var out []world.Action
	for ; x.tree[i].from >= 0; i = x.tree[i].from {
		out = append(out, x.actions[x.tree[i].action])
	}
	slices.Reverse(out)
	return out
}

// expand takes each step that is possible from a state.
func (x *search) expand(i int32) {
	before := x.history(i)
	w := x.make(before)
	next := x.scope.enabled(w, before)
	for n, a := range next {
		if n > 0 {
			w = x.make(before)
		}
		x.step(i, w, append(before[:len(before):len(before)], a))
		w.Close()
		if x.found != nil || x.figures.full {
			return
		}
	}
	if len(next) == 0 {
		w.Close()
	}
}

// step lets the last of these actions happen, and takes in where it leads.
func (x *search) step(from int32, w *world.World, actions []world.Action) {
	defer func() {
		if thrown := recover(); thrown != nil {
			x.found = &violation{actions, fmt.Sprintf("panic: %v", thrown)}
		}
	}()
	x.figures.transitions++
	a := actions[len(actions)-1]
	w.Do(a)
	if len(w.Violations) > 0 {
		x.found = &violation{actions, w.Violations[0].String()}
		return
	}
	k := x.key(w, actions)
	if _, again := x.known[k]; again {
		x.figures.again++
		return
	}
	x.add(from, a, k)
}

func (x *search) key(w *world.World, actions []world.Action) key {
	hash := w.Hash()
	sum := sha256.Sum256(append(hash[:], x.scope.spent(actions)...))
	return key(sum[:16])
}
