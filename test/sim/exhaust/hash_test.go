package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// walks looks for histories that end in states of one hash, and lets the same
// things happen after both.
type walks struct {
	scope   scope
	prelude []world.Action
	but     []string
	random  *rand.Rand
	// pairs is how many were compared.
	pairs int
}

func (k *walks) replay(actions []world.Action) *world.World {
	return k.scope.replay(k.prelude, actions, k.but...)
}

// next are the actions that the scope allows, in an order that does not depend on
// which reconcile began first.
func (k *walks) next(w *world.World, before []world.Action) []world.Action {
	return slices.SortedFunc(slices.Values(k.scope.enabled(w, before)), func(a, b world.Action) int {
		return cmp.Or(cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Who, b.Who), cmp.Compare(a.What, b.What))
	})
}

// hold walks at random until a number of pairs were compared, or for 300 walks, and
// describes a pair with equal hashes that behaves differently.
func (k *walks) hold(pairs int) string {
	first := map[[sha256.Size]byte][]world.Action{}
	for walk := 0; walk < 300 && k.pairs < pairs; walk++ {
		var path []world.Action
		w := k.replay(nil)
		for range 12 {
			next := k.next(w, path)
			if len(next) == 0 {
				break
			}
			a := next[k.random.IntN(len(next))]
			path = append(path, a)
			w.Do(a)
			hash := w.Hash()
			other, met := first[hash]
			switch {
			case !met:
				first[hash] = slices.Clone(path)
			case !slices.Equal(other, path) && bytes.Equal(k.scope.spent(other), k.scope.spent(path)):
				if broken := k.compare(other, path); broken != "" {
					w.Close()
					return broken
				}
			}
		}
		w.Close()
	}
	return ""
}

// compare lets the same happen after two histories.
func (k *walks) compare(one, other []world.Action) string {
	k.pairs++
	a, b := k.replay(one), k.replay(other)
	defer a.Close()
	defer b.Close()
	one, other = slices.Clone(one), slices.Clone(other)
	for range 12 {
		next := k.next(a, one)
		if !slices.Equal(next, k.next(b, other)) {
			return script("one history", one) + script("another one, after which something else is possible", other)
		}
		if len(next) == 0 {
			return ""
		}
		do := next[k.random.IntN(len(next))]
		one, other = append(one, do), append(other, do)
		a.Do(do)
		b.Do(do)
		if a.Hash() != b.Hash() || len(a.Violations) != len(b.Violations) {
			return script("one history", one) + script("another one, that leads elsewhere", other)
		}
	}
	return ""
}

func newWalks(t *testing.T, name string, but ...string) *walks {
	s, ok := scopeNamed(name)
	if !ok {
		t.Fatalf("no scope %q", name)
	}
	w, prelude := s.begin(nil)
	w.Close()
	return &walks{scope: s, prelude: prelude, but: but, random: rand.New(rand.NewPCG(1, 2))}
}

// What the hash takes for one state behaves as one.
func TestLongHashIsSound(t *testing.T) {
	for _, s := range scopes() {
		t.Run(s.name, func(t *testing.T) {
			k := newWalks(t, s.name)
			if broken := k.hold(15); broken != "" {
				t.Fatal(broken)
			}
			if k.pairs < 15 {
				t.Errorf("only %d pairs of histories led to one state", k.pairs)
			}
		})
	}
}

// The test above sees what a hash leaves out, where nothing else tells of it.
func TestLongHashNeedsAll(t *testing.T) {
	for name, test := range map[string]struct{ scope, field string }{
		"work that waits":             {"grow", "world.queue.waiting"},
		"what an agent has given out": {"release", "world.machine.endpoints"},
		"how far an agent has come":   {"release", "world.machine.phase"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newWalks(t, test.scope, test.field)
			if broken := k.hold(200); broken == "" {
				t.Errorf("no difference found in %d pairs of histories, without %s", k.pairs, test.field)
			}
		})
	}
}
