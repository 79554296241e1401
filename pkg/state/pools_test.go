package state

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestPoolsSetReportsWhatMatters(t *testing.T) {
	pools := NewPools(fixtures.Defaults(), ReadyLedger())
	obj := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	if !pools.Set(obj) {
		t.Error("a new pool is no news")
	}
	status := obj.DeepCopy()
	status.Status.Nodes, status.ResourceVersion = 1, "9"
	if pools.Set(status) {
		t.Error("a write of the status is news")
	}
	if !pools.Set(fixtures.Edited(obj, func(s *v1alpha1.PodIPPoolSpec) { s.Paused = true })) {
		t.Error("an edit is no news")
	}
	if !pools.Set(fixtures.BeingDeleted(obj)) {
		t.Error("a deletion is no news")
	}
	pools.Set(obj)
	again := obj.DeepCopy()
	again.UID = "another"
	if !pools.Set(again) {
		t.Error("another pool of the same name is no news")
	}
	pools.Delete("p")
	if pools.Get("p") != nil || !pools.Set(again) {
		t.Error("a deleted pool is remembered")
	}
}

// An invalid edit has the same effect on a pool before and after a restart: the pool assigns no
// block, and other pools serve its nodes.
func TestPoolsInvalidEdit(t *testing.T) {
	pools := NewPools(fixtures.Defaults(), ReadyLedger())
	obj, other := fixtures.PodIPPool("p", 1, "10.0.0.0/29"), fixtures.PodIPPool("q", 1, "10.0.1.0/29")
	obj.Spec.Priority = 5
	pools.Set(obj)
	pools.Set(other)
	bad := fixtures.Invalidated(obj)
	pools.Set(bad)
	restarted := NewPools(fixtures.Defaults(), ReadyLedger())
	restarted.Set(bad)
	for when, pools := range map[string]*Pools{"as it is edited": pools, "after a restart": restarted} {
		if pools.Invalid("p") == nil {
			t.Errorf("%s: the edit is taken for valid", when)
		}
		p := pools.Get("p")
		if p == nil || !p.Frozen() || p.Paused {
			t.Errorf("%s: the pool is %+v, want it frozen", when, p)
		}
	}
	if got := crd.ForFamily(pools.Match(nil), ipalloc.IPv4, ""); got[0].Name != "q" {
		t.Errorf("pool %s rules", got[0].Name)
	}

	pools.Set(fixtures.Edited(bad, func(s *v1alpha1.PodIPPoolSpec) { s.IPv4.CIDRs[0].CIDR = "10.0.0.0/28" }))
	if pools.Invalid("p") != nil || pools.Get("p").Frozen() {
		t.Error("still frozen though fixed")
	}
}

// A pool with thresholds that contradict each other continues to serve, and reports the fault.
func TestPoolsWrongThreshold(t *testing.T) {
	pools := NewPools(fixtures.Defaults(), ReadyLedger())
	obj := fixtures.PodIPPool("p", 1, "10.0.0.0/29")
	pools.Set(obj)
	pools.Set(fixtures.Edited(obj, func(s *v1alpha1.PodIPPoolSpec) {
		s.Expand.ThresholdPercent, s.Reclaim.ThresholdPercent = ptr.To[int32](80), ptr.To[int32](85)
	}))
	if err := pools.Invalid("p"); err == nil || !strings.Contains(err.Error(), "spec.reclaim.thresholdPercent") {
		t.Errorf("the threshold is taken for valid: %v", err)
	}
	if got := pools.Get("p"); got.Frozen() || got.Policy.ReclaimPercent != 79 || !got.Serves(ipalloc.IPv4) {
		t.Errorf("the pool is %+v", got)
	}
}

// If a pool becomes invalid, the drains of its blocks neither end nor start again. A pool that has
// been invalid for as long as this process has known it, as after a restart with other defaults, can
// still be deleted.
func TestPoolsInvalidKeepsDrains(t *testing.T) {
	draining := fixtures.At(fixtures.Block("10.0.0.0/30", "p", "n", 1), 2, ipalloc.Draining)
	draining.Reason = expand.CIDRDraining
	reclaimed := fixtures.At(fixtures.Block("10.0.0.4/30", "p", "n", 1), 2, ipalloc.Draining)
	reclaimed.Reason = expand.Reclaim
	c, bad := clusterOf(draining, reclaimed, fixtures.Block("10.0.0.8/30", "p", "n", 1)), fixtures.Invalidated(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	c.Pools.Delete("p")
	for _, step := range []struct {
		pool *v1alpha1.PodIPPool
		want []expand.Reason
	}{
		{bad, []expand.Reason{expand.CIDRDraining, expand.None, expand.None}},
		{fixtures.BeingDeleted(bad), []expand.Reason{expand.PoolDeleted, expand.PoolDeleted, expand.PoolDeleted}},
	} {
		c.Pools.Set(step.pool)
		var got []expand.Reason
		for _, b := range c.Snapshot("n", nil, fixtures.Noon()).Shares[0].State.Blocks {
			got = append(got, b.Request)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("requests are %q, want %q", got, step.want)
		}
	}
}

// The older pool assigns addresses that two pools share, whichever holds a block there, when the
// block goes, and after a restart.
func TestPoolsOverlap(t *testing.T) {
	give := func(p *Pools, name string) []netip.Prefix {
		if p.Get(name) == nil {
			return nil
		}
		cut, _ := p.Get(name).Cut(ipalloc.IPv4)
		return cut.Ranges
	}
	check := func(when string, pools *Pools, want map[string][]netip.Prefix) {
		t.Helper()
		got := map[string][]netip.Prefix{"old": give(pools, "old"), "young": give(pools, "young")}
		if diff := cmp.Diff(want, got, fixtures.CompareNetip()); diff != "" {
			t.Errorf("%s, ranges given out (-want +got):\n%s", when, diff)
		}
	}
	for _, held := range []string{"", "old", "young"} { // the pool that holds a block in the shared range
		ledger := NewLedger()
		restarted := func() *Pools {
			pools := NewPools(fixtures.Defaults(), ledger)
			pools.Set(fixtures.PodIPPool("young", 9, "10.0.0.0/28"))
			pools.Set(fixtures.PodIPPool("old", 2, "10.0.0.0/24", "10.1.0.0/24"))
			return pools
		}
		want := map[string][]netip.Prefix{"old": {fixtures.Prefix("10.0.0.0/24"), fixtures.Prefix("10.1.0.0/24")}, "young": nil}
		pools, block := restarted(), fixtures.Block("10.0.0.4/30", held, "n", 1)
		if held != "" { // known only after the pools
			ledger.Upsert(block)
		}
		check("held by "+held, pools, want)
		check("held by "+held+", after a restart", restarted(), want)
		ledger.Remove(block)
		check("once "+held+" holds nothing", pools, want)
		pools.Delete("old")
		check("without the older", pools, map[string][]netip.Prefix{"old": nil, "young": {fixtures.Prefix("10.0.0.0/28")}})
	}
}

// A reserved range is withheld exactly as long as the pool reserves it.
func TestPoolsReserved(t *testing.T) {
	ledger := ReadyLedger()
	pools := NewPools(fixtures.Defaults(), ledger)
	obj := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	reserving := fixtures.Edited(obj, func(s *v1alpha1.PodIPPoolSpec) { s.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.0/29"}} })
	free := func() uint64 { cut, _ := fixtures.PoolOf(t, obj).Cut(ipalloc.IPv4); return ledger.Free(cut) }
	for i, step := range []struct {
		do   func()
		want uint64
	}{
		{func() { pools.Set(obj) }, 4},
		{func() { pools.Set(reserving) }, 2},
		{func() { pools.Set(fixtures.PodIPPool("q", 1, "10.9.0.0/28")) }, 2},
		{func() { pools.Set(fixtures.Invalidated(reserving)) }, 2},
		{func() { pools.Delete("p") }, 4},
	} {
		step.do()
		if got := free(); got != step.want {
			t.Errorf("step %d: %d blocks are free, want %d", i, got, step.want)
		}
	}
}

// Pools and the ledger acquire each other's locks in one order only.
func TestPoolsAndLedgerDoNotDeadlock(t *testing.T) {
	ledger := ReadyLedger()
	pools := NewPools(fixtures.Defaults(), ledger)
	done := make(chan struct{}, 3)
	run := func(f func(i int)) {
		for i := range 200 {
			f(i)
		}
		done <- struct{}{}
	}
	go run(func(i int) {
		obj := fixtures.PodIPPool("p", 1, "10.0.0.0/24")
		obj.Generation = int64(i)
		pools.Set(obj)
	})
	go run(func(i int) { ledger.Upsert(fixtures.Block("10.0.0.0/30", "p", "n", i+1)); ledger.Free(ipalloc.Cut{}) })
	go run(func(int) {
		if cidr, _, err := ledger.Claim(ipalloc.IPv4, "n", "", pools.Match(nil)); err == nil {
			ledger.Forget("n", cidr)
		}
	})
	deadline := time.After(30 * time.Second)
	for range 3 {
		select {
		case <-done:
		case <-deadline:
			t.Fatal("still not done")
		}
	}
}
