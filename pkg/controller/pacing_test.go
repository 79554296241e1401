package controller

import (
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
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
			pacing, now := NewPacing(test.cluster, test.pool), noon()
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
