package pacing

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// begunMoves are the nodes that have begun to move, off any pool.
type begunMoves []string

func (b begunMoves) MovingOff(string) int { return len(b) }

func (b begunMoves) MovesOff(node, _ string) bool { return slices.Contains(b, node) }

func TestMove(t *testing.T) {
	p, pool, other := New(0, 0), &crd.Pool{Name: "p", MaxUnselected: 2}, &crd.Pool{Name: "q", MaxUnselected: 1}
	move := func(node string, want bool, begun ...string) {
		t.Helper()
		if got := p.Move(node, pool, begunMoves(begun)); got != want {
			t.Errorf("node %s moves: %t, want %t", node, got, want)
		}
	}
	move("a", true, "old") // "old" has begun under another leader
	move("b", false, "old")
	move("a", true, "old")
	move("old", true, "old")
	move("b", false, "old", "a") // a node that has begun counts once
	if !p.Move("b", other, begunMoves{}) {
		t.Error("each pool by itself: b waits")
	}
	p.KeepMoves("a", map[string]bool{"q": true})
	move("b", false, "old", "a") // a still drains
	move("b", true, "old")
	p.ForgetNode("b")
	move("c", true, "old")
	p.ForgetPool("p")
	move("d", true, "old")
}

// When a node has moved, a node that waits for its place is woken.
func TestMovedWakesTheNext(t *testing.T) {
	p, pool, other := New(0, 0), &crd.Pool{Name: "p", MaxUnselected: 1}, &crd.Pool{Name: "q", MaxUnselected: 1}
	var woken []string
	p.Changed = func(nodes []string) { woken = append(woken, nodes...) }
	asks := func(node string, pools ...*crd.Pool) {
		may := map[string]bool{}
		for _, pool := range pools {
			may[pool.Name] = p.Move(node, pool, begunMoves{})
		}
		p.KeepMoves(node, may)
	}
	expect := func(when, want string) {
		t.Helper()
		if got := strings.Join(woken, " "); got != want {
			t.Errorf("%s: %q ask again, want %q", when, got, want)
		}
		woken = nil
	}
	for _, node := range []string{"a", "b", "c", "d"} {
		asks(node, pool)
	}
	asks("e", other)
	asks("f", other)
	expect("while a moves", "")
	asks("a", pool)
	expect("a goes on", "")
	asks("a")
	expect("a has moved", "b")
	asks("b", pool)
	asks("c") // the pool selects c again
	p.ForgetNode("b")
	expect("b is gone", "d")
	p.ForgetNode("d")
	expect("d is gone before it asks", "")
	p.ForgetPool("q")
	asks("e")
	expect("q is gone", "")
	asks("g", pool, other)
	asks("h", pool)
	asks("i", other)
	asks("g")
	expect("g has moved off both", "h i")
}
