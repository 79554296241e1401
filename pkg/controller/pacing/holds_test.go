package pacing

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/holds"
)

// BenchmarkHolds reports the longest time that each method holds its lock, with 200 pools
// and with one. Each of the 3,125 nodes has a turn, and all but one wait to move off their
// pool.
func BenchmarkHolds(b *testing.B) {
	for _, pools := range []int{200, 1} {
		calls := holding(pools, 3125)
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			b.Run(fmt.Sprintf("%s/pools=%d", name, pools), func(b *testing.B) { holds.Report(b, calls[name]) })
		}
	}
}

func TestEveryHoldIsMeasured(t *testing.T) {
	calls := holding(3, 9)
	for _, call := range calls {
		call.Longest()
	}
	for method := range reflect.TypeFor[*Pacing]().Methods() {
		measured := func(call string) bool { return strings.Fields(call)[0] == method.Name }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(calls)), measured) {
			t.Errorf("%s is not measured", method.Name)
		}
	}
}

func holding(pools, nodes int) map[string]holds.Call {
	p, now := New(0, 0), time.Now()
	var all []*crd.Pool
	for i := range pools {
		pool := &crd.Pool{Name: fmt.Sprintf("pool-%d", i), MaxUnselected: 1}
		pool.Maintenance.BlocksPerHour = 1 << 20
		all = append(all, pool)
	}
	pool := func(i int) *crd.Pool { return all[i%pools] }
	name := func(i int) string { return fmt.Sprintf("n%05d", i) }
	shares := []state.Share{{Pools: all[:1], State: expand.State{Blocks: []expand.Block{{CIDR: block, Request: expand.NodeUnselected}}}}}
	ask := func(i int) {
		p.Settle(name(i), shares, now)
		p.DrainBudgets(name(i), shares, begunMoves{}, func(netip.Prefix) *crd.Pool { return pool(i) }, now)
	}
	reclaim := func(i int) { p.SpendReclaims(name(i), 1, []netip.Prefix{block}, pool(i), now) }
	for i := range nodes {
		reclaim(i)
		ask(i)
	}
	each := func(do, undo func(i int)) holds.Call { return holds.Call{N: min(nodes, 500), Do: do, Undo: undo} }
	return map[string]holds.Call{
		"Settle":          each(func(i int) { p.Settle(name(i), shares, now) }, func(i int) { reclaim(i) }),
		"DrainBudgets":    each(ask, nil),
		"PeekReclaims":    each(func(i int) { p.PeekReclaims(pool(i), now) }, nil),
		"ReserveReclaims": each(func(i int) { p.ReserveReclaims(&shares[0], 1, now) }, nil),
		"SpendReclaims":   each(reclaim, nil),
		"Begun":           each(func(i int) { p.Begun(name(i), block) }, reclaim),
		"GiveBack":        each(func(i int) { p.GiveBack(name(i), now) }, func(i int) { reclaim(i); ask(i) }),
		"KeepPlace":       each(func(i int) { p.KeepPlace(name(i), pool(i).Name, now) }, nil),
		"ForgetPool": {N: pools, Do: func(i int) { p.ForgetPool(all[i].Name) }, Undo: func(i int) {
			for n := i; n < nodes; n += pools {
				ask(n)
			}
		}},
	}
}
