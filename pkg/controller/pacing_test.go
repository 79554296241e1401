package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestPacing(t *testing.T) {
	type take struct {
		pool  string
		n     int
		after time.Duration // since the one before
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
			pacing, now := NewPacing(test.cluster, test.pool), fixtures.Noon()
			for i, take := range test.takes {
				now = now.Add(take.after)
				pool := &crd.Pool{Name: take.pool}
				if budget, _ := pacing.Budget(nodeFamily{}, pool, now); (budget >= take.n) != take.want {
					t.Errorf("step %d: budget is %d for %d", i, budget, take.n)
				}
				if got := pacing.Take(pool, take.n, now); got != take.want {
					t.Errorf("step %d: took %d: %t", i, take.n, got)
				}
			}
		})
	}
}

// waiting lets a node wait with so many blocks and so many percent in use.
func (p *Pacing) waiting(node string, due, used int, cordoned bool, now time.Time) {
	w := nodeFamily{node, ipalloc.IPv4}
	p.Queue(w, "p", &expand.State{Cordoned: cordoned}, expand.Plan{Overdue: due, Demand: used, Capacity: 100}, now)
}

func TestWhoGivesFirst(t *testing.T) {
	pacing, now := NewPacing(10, 0), fixtures.Noon() // one at once, and one more in 6 s
	pool := &crd.Pool{Name: "p"}
	budgets := func(want string) {
		t.Helper()
		got := ""
		for _, node := range []string{"busy", "idle", "cordoned", "new"} {
			n, _ := pacing.Budget(nodeFamily{node, ipalloc.IPv4}, pool, now)
			if n > 0 {
				got += node + " "
			}
		}
		if got = strings.TrimSpace(got); got != want {
			t.Errorf("at %s: budget for %q, want %q", now.Sub(fixtures.Noon()), got, want)
		}
	}
	budgets("busy idle cordoned new") // nobody waits yet
	pacing.waiting("busy", 1, 50, false, now)
	pacing.waiting("idle", 1, 10, false, now)
	pacing.waiting("cordoned", 1, 90, true, now)
	budgets("cordoned")
	if !pacing.Take(pool, 1, now) {
		t.Fatal("nothing to take")
	}
	pacing.waiting("cordoned", 0, 90, true, now)
	budgets("")
	now = now.Add(6 * time.Second)
	budgets("idle")
	pacing.forgetNode("idle")
	budgets("busy")
	now = now.Add(queuedFor) // busy has not come back
	budgets("busy idle cordoned new")
}

// A node that waits for a window keeps nobody else waiting before it opens.
func TestQueueOfAWindow(t *testing.T) {
	pacing, now := NewPacing(10, 0), fixtures.Noon()
	w, other, pool := nodeFamily{"n", ipalloc.IPv4}, nodeFamily{"o", ipalloc.IPv4}, &crd.Pool{Name: "q"}
	held := &expand.State{ReclaimHold: expand.Hold{For: expand.WaitWindow, Until: now.Add(time.Hour)}}
	pacing.Queue(w, "p", held, expand.Plan{Overdue: 1, Capacity: 1}, now)
	if n, _ := pacing.Budget(other, pool, now); n != 1 {
		t.Errorf("before: %d", n)
	}
	if n, _ := pacing.Budget(other, pool, now.Add(time.Hour)); n != 0 {
		t.Errorf("as it opens: %d", n)
	}
	held.ReclaimHold.Until = time.Time{}
	pacing.Queue(w, "p", held, expand.Plan{Overdue: 1, Capacity: 1}, now)
	if n, _ := pacing.Budget(other, pool, now.Add(time.Hour)); n != 1 {
		t.Errorf("one that never opens: %d", n)
	}
}

// Reclaims and drains of a pool share its hour.
func TestHour(t *testing.T) {
	pacing, now := NewPacing(0, 0), fixtures.Noon()
	pool := &crd.Pool{Name: "p", Maintenance: crd.Maintenance{BlocksPerHour: 120}} // two at once, one more in 30 s
	a, b := nodeFamily{"a", ipalloc.IPv4}, nodeFamily{"b", ipalloc.IPv4}
	block := fixtures.Prefix("10.0.0.0/30")
	if wait := pacing.Turn(a, block, pool, now); wait != 0 {
		t.Errorf("the first waits %s", wait)
	}
	if wait := pacing.Turn(a, block, pool, now); wait != 0 {
		t.Errorf("the same again waits %s", wait)
	}
	if !pacing.Take(pool, 1, now) || pacing.Take(pool, 1, now) {
		t.Error("one reclaim beside one drain, and no more")
	}
	if wait := pacing.Turn(b, block, pool, now); wait != 30*time.Second {
		t.Errorf("the third waits %s", wait)
	}
	if n, wait := pacing.Budget(b, pool, now.Add(25*time.Second)); n != 0 || wait != turnWait {
		t.Errorf("budget %d, look again in %s", n, wait)
	}
	pacing.keepTurns(a, nil)
	if wait := pacing.Turn(a, block, pool, now); wait == 0 {
		t.Error("a turn that was given up is there again")
	}
	pool.Maintenance.BlocksPerHour = 0
	if n, wait := pacing.Budget(b, pool, now); n != unlimited || wait != 0 {
		t.Errorf("without a rate: budget %d, wait %s", n, wait)
	}
}

// What is given back can be taken at once, and is never more than could be before.
func TestReturn(t *testing.T) {
	pacing, now := NewPacing(10, 20), fixtures.Noon()
	pool := &crd.Pool{Name: "p", Maintenance: crd.Maintenance{BlocksPerHour: 60}}
	for step := range 3 {
		if !pacing.Take(pool, 1, now) || pacing.Take(pool, 1, now) {
			t.Errorf("step %d: want one reclaim, and no more", step)
		}
		pacing.Return(pool, 1, now)
	}
	pacing.Return(pool, 5, now)
	if n, _ := pacing.Budget(nodeFamily{}, pool, now); n != 1 {
		t.Errorf("budget %d, want one", n)
	}
}

// Nothing is kept of a pool that is gone.
func TestPacingForgetsPools(t *testing.T) {
	b, now := newBed(t), fixtures.Noon()
	pacing := b.r.Pacing
	pool := &crd.Pool{Name: "p", Maintenance: crd.Maintenance{BlocksPerHour: 60}}
	other := &crd.Pool{Name: "q", Maintenance: crd.Maintenance{BlocksPerHour: 60}}
	w := nodeFamily{"n", ipalloc.IPv4}
	for _, p := range []*crd.Pool{pool, other} {
		pacing.Take(p, 1, now)
		pacing.setTaken(p.Name, ipalloc.IPv6, 50)
	}
	pacing.waiting("n", 1, 50, false, now) // for p
	pools := b.poolReconciler()
	pools.Forget = pacing.forgetPool
	if _, err := pools.Reconcile(t.Context(), requestOf("p")); err != nil {
		t.Fatal(err)
	}
	if pacing.pools["p"] != nil || pacing.hours["p"] != nil || pacing.taken("p", ipalloc.IPv6) != 0 || pacing.queue[w].pool != "" {
		t.Errorf("kept: %v, %v, %v, %v", pacing.pools, pacing.hours, pacing.full, pacing.queue)
	}
	if pacing.pools["q"] == nil || pacing.hours["q"] == nil || pacing.taken("q", ipalloc.IPv6) != 50 {
		t.Errorf("forgotten: %v, %v, %v", pacing.pools, pacing.hours, pacing.full)
	}
}
