package node

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/holds"
)

// Drains' waits are summed per pool over all nodes; when a node goes, its share goes too.
func TestDrainWaits(t *testing.T) {
	w := newDrainMetrics()
	poolOf := func(obstacle expand.Obstacle) string {
		return map[string]string{"10.0.0.0/30": "p", "10.9.0.0/30": "q"}[obstacle.CIDR.String()]
	}
	set := func(node string, obstacles ...expand.Obstacle) {
		w.set(&state.Share{}, obstacles, false, node, poolOf, fixtures.Noon())
	}
	pods, agent := expand.Obstacle{CIDR: fixtures.Prefix("10.0.0.0/30"), Reason: expand.WaitPods}, expand.Obstacle{CIDR: fixtures.Prefix("10.9.0.0/30"), Reason: expand.WaitAgent}
	steps := []struct {
		do   func()
		want map[string]float64
	}{
		{func() { set("a", pods, pods, agent) }, map[string]float64{"p Pods": 2, "q AgentAddress": 1}},
		{func() { set("b", pods) }, map[string]float64{"p Pods": 3, "q AgentAddress": 1}},
		{func() { set("a", pods) }, map[string]float64{"p Pods": 2}},
		{func() { set("a") }, map[string]float64{"p Pods": 1}},
		{func() { w.forget("b", func(state.ShareKey) bool { return true }) }, map[string]float64{}},
	}
	for i, step := range steps {
		step.do()
		want := map[string]float64{}
		for name, n := range step.want {
			want["cilium_pool_drain_wait_blocks ipv4 "+name] = n
		}
		if diff := cmp.Diff(want, fakeapi.Series(t, w)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	if len(w.nodes) > 0 {
		t.Errorf("settled, it remembers %v", w.nodes)
	}
}

// Marks that are withdrawn and set again count as unanswered since the first one; an answer
// ends that.
func TestUnansweredMarks(t *testing.T) {
	a, b := fixtures.Addrs("10.0.0.1")[0], fixtures.Addrs("10.0.0.2")[0]
	type entries = map[string]expand.ReleaseStatus
	steps := []struct {
		name    string
		entries entries
		mark    bool
		want    time.Duration // since noon; below 0: no debt
	}{
		{"nothing is marked", nil, false, -1},
		{"a mark is to be set", nil, true, 1},
		{"it stands", entries{a.String(): expand.Marked}, false, 1},
		{"it was withdrawn, and is set again", nil, true, 1},
		{"it stands beside another", entries{a.String(): expand.Marked, b.String(): expand.Marked}, false, 1},
		{"the other is answered", entries{a.String(): expand.Marked, b.String(): expand.Ready}, false, 5},
		{"one is left", entries{a.String(): expand.Marked}, false, 5},
		{"of the other family alone", entries{"fd00::1": expand.Marked}, false, -1},
		{"all is answered", entries{a.String(): expand.Ready}, false, -1},
	}
	w := newDrainMetrics()
	for i, step := range steps {
		share := &state.Share{
			Pools: []*crd.Pool{{Name: "p"}},
			State: expand.State{Release: map[netip.Addr]expand.ReleaseStatus{}},
		}
		for key, status := range step.entries {
			share.State.Release[fixtures.Addrs(key)[0]] = status
		}
		w.set(share, nil, step.mark, "n", func(expand.Obstacle) string { return "" }, fixtures.Noon().Add(time.Duration(i)*time.Second))
		want := map[string]float64{}
		if step.want >= 0 {
			want["cilium_pool_mark_unanswered_timestamp_seconds ipv4 p"] = float64(fixtures.Noon().Unix()) + float64(step.want)
		}
		if diff := cmp.Diff(want, fakeapi.Series(t, w)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	share := &state.Share{Pools: []*crd.Pool{{Name: "p"}}}
	w.set(share, nil, true, "n", nil, fixtures.Noon())
	if w.pause("n", share.Key("n")); len(fakeapi.Series(t, w)) > 0 {
		t.Error("paused, it waits for an answer")
	}
}

// A node counts once for each pool that rules shares of it, and as short if one of them is.
func TestNodesOfPools(t *testing.T) {
	p := newPoolNodes()
	key := func(node, ciliumPool string) state.ShareKey {
		return state.ShareKey{Node: node, CiliumPool: ciliumPool}
	}
	p.set(key("a", ""), "p", false)
	p.set(key("a", "blue"), "p", true)
	p.set(key("b", ""), "p", false)
	p.set(key("c", ""), "q", true)
	p.set(key("c", ""), "p", false) // its labels have changed
	want := map[string]float64{"cilium_pool_pool_ruled_nodes ipv4 p": 3, "cilium_pool_pool_short_nodes ipv4 p": 1}
	if diff := cmp.Diff(want, fakeapi.Series(t, p)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	p.set(key("a", "blue"), "", true)
	p.forget("b", func(state.ShareKey) bool { return true })
	want = map[string]float64{"cilium_pool_pool_ruled_nodes ipv4 p": 2, "cilium_pool_pool_short_nodes ipv4 p": 0}
	if diff := cmp.Diff(want, fakeapi.Series(t, p)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// A node of a pool without addresses for its pods is short, until it is gone.
func TestShortNodeOfPool(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"))
	b.startAgent()
	b.pods(5)
	b.settle()
	want := map[string]float64{"cilium_pool_pool_ruled_nodes ipv4 p": 1, "cilium_pool_pool_short_nodes ipv4 p": 1}
	if diff := cmp.Diff(want, fakeapi.Series(t, b.r.Metrics.pools)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	b.must(b.API.Delete(t.Context(), fixtures.Node()))
	b.settle()
	if got := fakeapi.Series(t, b.r.Metrics.pools); len(got) > 0 {
		t.Errorf("the node is gone, and there is %v", got)
	}
}

// What did not happen has no series, and a gauge without a value none either.
func TestOnlyWhatHappensIsCounted(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	m.decided(ipalloc.IPv4, expand.Plan{Drain: make([]expand.Drain, 2), CoolDown: make([]expand.CoolDown, 1)})
	m.handshake("mark", 3)
	m.handshake("clear", 0)
	for _, n := range []int{0, 2, 0, 3} {
		setUnless(0, m.shortages, n, "n", "ipv4")
	}
	setUnless(0, m.shortages, 0, "m", "ipv4")
	want := map[string]float64{
		"cilium_pool_decisions_total drain ipv4": 2, "cilium_pool_decisions_total free ipv4": 1,
		"cilium_pool_address_steps_total mark": 3, "cilium_pool_node_shortage_addresses ipv4 n": 3,
	}
	if diff := cmp.Diff(want, fakeapi.Series(t, m.decisions, m.steps, m.shortages)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// Claims and releases are counted by pool and by outcome.
func TestClaimsAndReleases(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(b *bed)
		want    map[string]float64
	}{
		"claimed": {func(*bed) {}, map[string]float64{"cilium_pool_claims_total ipv4 p ok": 2}},
		"refused": {func(b *bed) { b.Fate = func(string) fakeapi.Fate { return fakeapi.Refused } }, map[string]float64{"cilium_pool_claims_total ipv4 p error": 1}},
		"another node was first": {
			func(b *bed) {
				b.Blind = true
				b.must(b.API.Create(b.T.Context(), foreignBlock("10.0.0.0/30")))
				b.Blind = false
			},
			map[string]float64{"cilium_pool_claims_total ipv4 p taken": 1, "cilium_pool_claims_total ipv4 p ok": 1, "cilium_pool_claims_total ipv4 p exhausted": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node(), bare(), fixtures.PodIPPool("p", 1, "10.0.0.0/29"))
			test.prepare(b)
			_, _ = b.reconcile()
			if diff := cmp.Diff(test.want, fakeapi.Series(t, b.Shared.Claims, b.Shared.Releases)); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
	b := resting(t)
	b.settle()
	if diff := cmp.Diff(map[string]float64{"cilium_pool_releases_total ipv4 p Returned": 1}, fakeapi.Series(t, b.Shared.Releases)); diff != "" {
		t.Errorf("releases (-want +got):\n%s", diff)
	}
}

// BenchmarkHolds reports the longest hold of the lock on drains' waits, with a drain on each of
// 3,125 nodes in 200 pools. The lock on the memory of nodes is held for the lookup of one node.
func BenchmarkHolds(b *testing.B) {
	const pools, nodes = 200, 3125
	w, cidr := newDrainMetrics(), fixtures.Prefix("10.0.0.0/28")
	set := func(i int) {
		pool := fmt.Sprintf("pool-%d", i%pools)
		share := &state.Share{Pools: []*crd.Pool{{Name: pool}}}
		w.set(share, []expand.Obstacle{{CIDR: cidr, Reason: expand.WaitPods}}, false, fmt.Sprintf("n%05d", i), func(expand.Obstacle) string { return pool }, fixtures.Noon())
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
