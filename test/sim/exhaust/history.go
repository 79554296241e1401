package main

import (
	"maps"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// begin makes the world of a scope, and lists the actions that led to it.
func (s scope) begin(trace func(string)) (*world.World, []world.Action) {
	config := s.config()
	config.Trace = trace
	p := &prelude{w: world.New(config)}
	s.before(p)
	return p.w, p.actions
}

// replay makes a world in which these actions have happened, of which the
// prelude's need no record. Fields named are left out of its hash.
func (s scope) replay(prelude, actions []world.Action, but ...string) *world.World {
	w := world.New(s.config())
	for _, a := range prelude {
		w.Enabled() // as it moves what has come due
		w.Do(a)
	}
	w.Record(but...)
	for _, a := range actions {
		w.Enabled()
		w.Do(a)
	}
	return w
}

// enabled are the actions that the scope tries next, after those before.
func (s scope) enabled(w *world.World, before []world.Action) []world.Action {
	var out []world.Action
	for _, a := range w.Enabled() {
		if s.allows(a) && s.more(a.Verb, before) {
			out = append(out, a)
		}
	}
	return out
}

func (s scope) more(verb world.Verb, before []world.Action) bool {
	most := s.verbs[verb]
	return (most == free || count(before, verb) < most) && (!mishap(verb) || mishaps(before) < s.mishaps)
}

func count(actions []world.Action, verb world.Verb) int {
	n := 0
	for _, a := range actions {
		if a.Verb == verb {
			n++
		}
	}
	return n
}

func mishaps(actions []world.Action) int {
	n := 0
	for _, a := range actions {
		if mishap(a.Verb) {
			n++
		}
	}
	return n
}

// spent encodes how much has happened of what is limited in number: what may happen
// next depends on it.
func (s scope) spent(actions []world.Action) []byte {
	out := []byte{byte(mishaps(actions))}
	for _, verb := range slices.Sorted(maps.Keys(s.verbs)) {
		if s.verbs[verb] != free {
			out = append(out, byte(count(actions, verb)))
		}
	}
	return out
}
