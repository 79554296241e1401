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
	share := func(i int) state.ShareKey { return state.ShareKey{Node: name(i)} }
	block := netip.MustParsePrefix("10.0.0.0/28")
	turn := func(i int) { p.Turn(share(i), block, pool(i), now) }
	ask := func(i int) {
		p.KeepMoves(name(i), map[string]bool{pool(i).Name: p.Move(name(i), pool(i), begunMoves{})})
	}
	for i := range nodes {
		turn(i)
		ask(i)
	}
	each := func(do, undo func(i int)) holds.Call { return holds.Call{N: min(nodes, 500), Do: do, Undo: undo} }
	return map[string]holds.Call{
		"Budget":     each(func(i int) { p.Budget(pool(i), now) }, nil),
		"Take":       each(func(i int) { p.Take(pool(i), 1, now) }, nil),
		"Return":     each(func(i int) { p.Return(pool(i), 1, now) }, nil),
		"Turn":       each(turn, nil),
		"ReturnTurn": each(func(i int) { p.ReturnTurn(share(i), block, now) }, turn),
		"KeepTurns":  each(func(i int) { p.KeepTurns(share(i), nil) }, turn),
		"Move":       each(func(i int) { p.Move(name(i), pool(i), begunMoves{}) }, nil),
		"KeepMoves":  each(func(i int) { p.KeepMoves(name(i), nil) }, ask),
		"ForgetNode": each(func(i int) { p.ForgetNode(name(i)) }, func(i int) { turn(i); ask(i) }),
		"ForgetPool": {N: pools, Do: func(i int) { p.ForgetPool(all[i].Name) }, Undo: func(i int) {
			for n := i; n < nodes; n += pools {
				ask(n)
			}
		}},
	}
}
