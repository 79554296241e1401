package pacing

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestPacing(t *testing.T) {
	type take struct {
		pool  string
		n     int
		after time.Duration // since the previous one
		want  bool
	}
	tests := map[string]struct {
		cluster, pool int // per minute
		takes         []take
	}{
		"no limit":                                      {0, 0, []take{{"p", 1000, 0, true}, {"p", 1000, 0, true}}},
		"a tenth of a minute's at once":                 {60, 0, []take{{"p", 6, 0, true}, {"p", 1, 0, false}, {"p", 1, time.Second, true}}},
		"at least one at once":                          {1, 0, []take{{"p", 1, 0, true}, {"p", 1, 59 * time.Second, false}, {"p", 1, time.Second, true}}},
		"more than ever comes at once":                  {60, 0, []take{{"p", 7, time.Hour, false}, {"p", 6, 0, true}}},
		"each pool by itself":                           {0, 10, []take{{"p", 1, 0, true}, {"p", 1, 0, false}, {"q", 1, 0, true}}},
		"the cluster holds for all":                     {10, 0, []take{{"p", 1, 0, true}, {"q", 1, 0, false}}},
		"a pool at its limit costs the cluster nothing": {20, 10, []take{{"p", 1, 0, true}, {"p", 1, 0, false}, {"q", 1, 0, true}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pacing, now := New(test.cluster, test.pool), fixtures.Noon()
			for i, take := range test.takes {
				now = now.Add(take.after)
				pool := &crd.Pool{Name: take.pool}
				if budget, _ := pacing.PeekReclaims(pool, now); (budget >= take.n) != take.want {
					t.Errorf("step %d: budget is %d for %d", i, budget, take.n)
				}
				share := state.Share{Pools: []*crd.Pool{pool}, State: expand.State{Blocks: make([]expand.Block, 1)}}
				reserved, _ := pacing.ReserveReclaims(&share, take.n, now)
				if (reserved == take.n) != take.want {
					t.Errorf("step %d: reserved %d of %d", i, reserved, take.n)
				}
				var blocks []netip.Prefix
				if reserved == take.n {
					blocks = make([]netip.Prefix, take.n)
				}
				pacing.SpendReclaims("n", reserved, blocks, pool, now)
			}
		})
	}
}

// paced is a Pacing, and a pool with one block for each node.
type paced struct {
	*Pacing
	pool *crd.Pool
	now  time.Time
}

var block = fixtures.Prefix("10.0.0.0/30")

// budget returns the budget of a node with a block, and with no more reclaims than most.
func (p *paced) budget(node string, b expand.Block, most int) expand.Budget {
	b.CIDR = block
	shares := []state.Share{{Pools: []*crd.Pool{p.pool}, State: expand.State{Blocks: []expand.Block{b}}}}
	p.Settle(node, shares, p.now)
	budget := p.DrainBudgets(node, shares, begunMoves{}, func(netip.Prefix) *crd.Pool { return p.pool }, p.now)[0]
	budget.Reclaims, budget.ReclaimDelay = p.ReserveReclaims(&shares[0], most, p.now)
	return budget
}

// asks returns the wait of a node's requested drain.
func (p *paced) asks(node string) time.Duration {
	delay, delayed := p.budget(node, expand.Block{Request: expand.CIDRDraining}, 0).Delays[block]
	if !delayed {
		return 0
	}
	return delay.Until.Sub(p.now)
}

// moves returns the delay of a node's move off the pool.
func (p *paced) moves(node string) expand.Obstacle {
	return p.budget(node, expand.Block{Request: expand.NodeUnselected}, 0).Delays[block]
}

// reclaims reports whether a node gets a ticket to reclaim its block.
func (p *paced) reclaims(node string) bool {
	if p.budget(node, expand.Block{}, 1).Reclaims == 0 {
		return false
	}
	p.SpendReclaims(node, 1, []netip.Prefix{block}, p.pool, p.now)
	return true
}

// left returns the number of reclaims that may start, and their delay.
func (p *paced) left(node string) (int, expand.Obstacle) {
	budget := p.budget(node, expand.Block{}, 9)
	p.SpendReclaims(node, budget.Reclaims, nil, p.pool, p.now)
	return budget.Reclaims, budget.ReclaimDelay
}

func newPaced(cluster, perPool, perHour int) *paced {
	return &paced{New(cluster, perPool), &crd.Pool{Name: "p", Maintenance: crd.Maintenance{BlocksPerHour: perHour}}, fixtures.Noon()}
}

// Reclaims and drains of a pool share its hourly limit.
func TestHour(t *testing.T) {
	p := newPaced(0, 0, 120) // two at once, one more in 30 s
	if wait := p.asks("a"); wait != 0 {
		t.Errorf("the first waits %s", wait)
	}
	if wait := p.asks("a"); wait != 0 {
		t.Errorf("the same again waits %s", wait)
	}
	if !p.reclaims("r") || p.reclaims("s") {
		t.Error("one reclaim beside one drain, and no more")
	}
	if wait := p.asks("b"); wait != 30*time.Second {
		t.Errorf("the third waits %s", wait)
	}
	p.now = p.now.Add(25 * time.Second)
	if n, delay := p.left("c"); n != 0 || delay.Reason != expand.WaitTurn || delay.Until != p.now.Add(turnWait) {
		t.Errorf("budget %d, delay %v", n, delay)
	}
	p.budget("a", expand.Block{Phase: ipalloc.Draining, Request: expand.CIDRDraining}, 0)
	if wait := p.asks("a"); wait == 0 {
		t.Error("the ticket of a drain that has begun is there again")
	}
	p.pool.Maintenance.BlocksPerHour = 0
	if n, delay := p.left("c"); n != 9 || delay.Reason != "" {
		t.Errorf("without a rate: budget %d, delay %v", n, delay)
	}
}

// The ticket of a drain or reclaim goes back at the next look if that did not begin. It is spent if a
// write may have begun it.
func TestReturn(t *testing.T) {
	p := newPaced(10, 20, 60)
	for step, request := range []expand.Reason{expand.None, expand.CIDRDraining, expand.None} {
		if request == expand.None && !p.reclaims("n") || request != expand.None && p.asks("n") != 0 {
			t.Errorf("step %d: want a ticket", step)
		}
		if p.reclaims("m") {
			t.Errorf("step %d: there was a second ticket", step)
		}
		if n, _ := p.left("n"); n != 1 || len(p.tickets) > 0 {
			t.Errorf("step %d: budget %d, want one; kept %v", step, n, p.tickets)
		}
	}
	if p.reclaims("n"); len(p.tickets) != 1 {
		t.Errorf("tickets are %v", p.tickets)
	}
	p.Begun("n", block)
	if n, _ := p.left("n"); n != 0 || len(p.tickets) > 0 {
		t.Errorf("budget %d after it has begun; kept %v", n, p.tickets)
	}
}

// A node that cannot begin its drain, or is gone, leaves its ticket to others.
func TestRelease(t *testing.T) {
	p := newPaced(0, 0, 1)
	if p.asks("a") != 0 || p.asks("b") == 0 {
		t.Error("want a ticket for a alone")
	}
	p.GiveBack("a", p.now)
	if p.asks("b") != 0 {
		t.Error("want a's ticket for b")
	}
	p.Begun("b", block)
	p.GiveBack("b", p.now)
	if p.asks("a") == 0 {
		t.Error("a ticket is there again after its drain has begun")
	}
}

// The state of a deleted pool is dropped.
func TestPacingForgetsPools(t *testing.T) {
	pacing, now := New(0, 0), fixtures.Noon()
	for _, name := range []string{"p", "q"} {
		pacing.PeekReclaims(&crd.Pool{Name: name}, now)
	}
	pacing.ForgetPool("p")
	if pacing.pools["p"] != nil || pacing.pools["q"] == nil {
		t.Errorf("it keeps %v", pacing.pools)
	}
}
