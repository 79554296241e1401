package pacing

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

func TestMove(t *testing.T) {
	p, pool, other := New(0, 0), &crd.Pool{Name: "p", MaxUnselected: 2}, &crd.Pool{Name: "q", MaxUnselected: 1}
	move := func(node string, want bool, begun ...string) {
		t.Helper()
		nodes := map[string]bool{}
		for _, n := range begun {
			nodes[n] = true
		}
		if got := p.Move(node, pool, nodes); got != want {
			t.Errorf("node %s moves: %t, want %t", node, got, want)
		}
	}
	move("a", true, "old") // "old" has begun under another leader
	move("b", false, "old")
	move("a", true, "old")
	move("old", true, "old")
	move("b", false, "old", "a") // who has begun counts once
	if !p.Move("b", other, nil) {
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
