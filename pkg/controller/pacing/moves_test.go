package pacing

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// begunMoves are the nodes that have begun to move, off any pool.
type begunMoves []string

func (b begunMoves) MovingOff(string) int { return len(b) }

func (b begunMoves) MovesOff(node, _ string) bool { return slices.Contains(b, node) }

// asks lets a node ask for a place among the nodes that move off pools, and reports whether it has one
// for all of them.
func (p *Pacing) asks(node string, begun begunMoves, pools ...*crd.Pool) bool {
	shares := []state.Share{{State: expand.State{Blocks: make([]expand.Block, len(pools))}}}
	blocks := shares[0].State.Blocks
	for i := range blocks {
		blocks[i] = expand.Block{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32), Request: expand.NodeUnselected}
	}
	p.Settle(node, shares, fixtures.Noon())
	budgets := p.DrainBudgets(node, shares, begun, func(cidr netip.Prefix) *crd.Pool { return pools[cidr.Addr().As4()[3]] }, fixtures.Noon())
	return !slices.ContainsFunc(blocks, func(b expand.Block) bool { return budgets[0].Delays[b.CIDR].Reason == expand.WaitNodes })
}

func TestMove(t *testing.T) {
	p, pool, other := New(0, 0), &crd.Pool{Name: "p", MaxUnselected: 2}, &crd.Pool{Name: "q", MaxUnselected: 1}
	move := func(node string, want bool, begun ...string) {
		t.Helper()
		if got := p.asks(node, begun, pool); got != want {
			t.Errorf("node %s moves: %t, want %t", node, got, want)
		}
	}
	move("a", true, "old") // "old" has begun under another leader
	move("b", false, "old")
	move("a", true, "old")
	move("old", true, "old")
	move("b", false, "old", "a") // a node that has begun counts once
	if !p.asks("c", nil, other) {
		t.Error("each pool by itself: c waits")
	}
	p.asks("a", nil, other)
	move("b", false, "old", "a") // a still drains
	move("b", true, "old")
	p.GiveBack("b", fixtures.Noon())
	move("c", true, "old")
	p.ForgetPool("p")
	move("d", true, "old")
}

// A node that does not begin to move in time may lose its place to another one, and then begins no more.
func TestPlaceWithoutAMove(t *testing.T) {
	p := newPaced(0, 0, 0)
	p.pool.MaxUnselected = 2
	for i, step := range []struct {
		after time.Duration
		node  string
		want  bool
	}{
		{0, "a", true}, {0, "b", true}, {0, "c", false},
		{placeWait - 1, "c", false},
		{1, "c", true},                 // in a's place
		{0, "b", true}, {0, "a", true}, // in b's
		{0, "d", false}, {0, "b", false},
		{placeWait, "a", true}, {0, "c", true}, {0, "d", true},
	} {
		p.now = p.now.Add(step.after)
		if delay := p.moves(step.node); (delay.Reason == "") != step.want {
			t.Errorf("step %d: %s waits for %q", i, step.node, delay.Reason)
		}
	}
	if p.KeepPlace("a", "p", p.now) || !p.KeepPlace("c", "p", p.now) {
		t.Error("a begins to move in a place that d has, or c does not in its own")
	}
	if p.moves("a").Reason == "" {
		t.Error("a takes the place of c, which begins to move")
	}
}

// When a node has moved, a node that waits for its place is woken.
func TestMovedWakesTheNext(t *testing.T) {
	p, pool, other := New(0, 0), &crd.Pool{Name: "p", MaxUnselected: 1}, &crd.Pool{Name: "q", MaxUnselected: 1}
	var woken []string
	p.Changed = func(nodes []string) { woken = append(woken, nodes...) }
	asks := func(node string, pools ...*crd.Pool) { p.asks(node, nil, pools...) }
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
	p.GiveBack("b", fixtures.Noon())
	expect("b is gone", "d")
	p.GiveBack("d", fixtures.Noon())
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
