package pacing

import (
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
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
				if budget, _ := pacing.Budget(pool, now); (budget >= take.n) != take.want {
					t.Errorf("step %d: budget is %d for %d", i, budget, take.n)
				}
				if got := pacing.Take(pool, take.n, now); got != take.want {
					t.Errorf("step %d: took %d: %t", i, take.n, got)
				}
			}
		})
	}
}

// Reclaims and drains of a pool share its hourly limit.
func TestHour(t *testing.T) {
	pacing, now := New(0, 0), fixtures.Noon()
	pool := &crd.Pool{Name: "p", Maintenance: crd.Maintenance{BlocksPerHour: 120}} // two at once, one more in 30 s
	a, b := state.ShareKey{Node: "a"}, state.ShareKey{Node: "b"}
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
	if n, wait := pacing.Budget(pool, now.Add(25*time.Second)); n != 0 || wait != turnWait {
		t.Errorf("budget %d, look again in %s", n, wait)
	}
	pacing.KeepTurns(a, nil)
	if wait := pacing.Turn(a, block, pool, now); wait == 0 {
		t.Error("a turn that was released is there again")
	}
	pool.Maintenance.BlocksPerHour = 0
	if n, wait := pacing.Budget(pool, now); n != unlimited || wait != 0 {
		t.Errorf("without a rate: budget %d, wait %s", n, wait)
	}
}

// Reclaims that are returned can be taken again at once, but never more than before.
func TestReturn(t *testing.T) {
	pacing, now := New(10, 20), fixtures.Noon()
	pool := &crd.Pool{Name: "p", Maintenance: crd.Maintenance{BlocksPerHour: 60}}
	for step := range 3 {
		if !pacing.Take(pool, 1, now) || pacing.Take(pool, 1, now) {
			t.Errorf("step %d: want one reclaim, and no more", step)
		}
		pacing.Return(pool, 1, now)
	}
	pacing.Return(pool, 5, now)
	if n, _ := pacing.Budget(pool, now); n != 1 {
		t.Errorf("budget %d, want one", n)
	}
}

// The state of a deleted pool is dropped.
func TestPacingForgetsPools(t *testing.T) {
	pacing, now := New(0, 0), fixtures.Noon()
	for _, name := range []string{"p", "q"} {
		pacing.Take(&crd.Pool{Name: name, Maintenance: crd.Maintenance{BlocksPerHour: 60}}, 1, now)
	}
	pacing.ForgetPool("p")
	if pacing.pools["p"] != nil || pacing.hours["p"] != nil {
		t.Errorf("kept: %v, %v", pacing.pools, pacing.hours)
	}
	if pacing.pools["q"] == nil || pacing.hours["q"] == nil {
		t.Errorf("forgotten: %v, %v", pacing.pools, pacing.hours)
	}
}
