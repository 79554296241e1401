package node

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/holds"
)

// BenchmarkHolds reports the longest hold of the lock on drains' waits, with a drain on each of
// 3,125 nodes in 200 pools. The lock on the memory of nodes is held for the lookup of one node.
func BenchmarkHolds(b *testing.B) {
	const pools, nodes = 200, 3125
	w, cidr := newWaiting(), fixtures.Prefix("10.0.0.0/28")
	set := func(i int) {
		pool := fmt.Sprintf("pool-%d", i%pools)
		plan := &familyPlan{Share: &state.Share{Pools: []*crd.Pool{{Name: pool}}}, plan: expand.Plan{Waits: []expand.Wait{{CIDR: cidr, For: expand.WaitPods}}}}
		w.set(plan, fmt.Sprintf("n%05d", i), func(expand.Wait) string { return pool }, fixtures.Noon())
	}
	for i := range nodes {
		set(i)
	}
	series := make(chan prometheus.Metric, nodes)
	calls := map[string]holds.Call{
		"set": {N: 500, Do: set},
		"Collect": {N: 3, Do: func(int) { w.Collect(series) }, Undo: func(int) {
			for len(series) > 0 {
				<-series
			}
		}},
		"forget": {N: 500, Do: func(i int) { w.forget(fmt.Sprintf("n%05d", i), func(state.ShareKey) bool { return true }) }, Undo: set},
	}
	for name, call := range calls {
		b.Run(name, func(b *testing.B) { holds.Report(b, call) })
	}
}
