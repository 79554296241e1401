package state

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// Set reports whether anything but the status has changed. A pool that cannot be read is frozen, and
// other pools serve its nodes; a fault of its policy alone leaves it in service. Its reserved range is
// withheld as long as it reserves it. A restart after any of the changes makes no difference.
func TestPoolsSet(t *testing.T) {
	obj, other := fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.PodIPPool("q", 1, "10.1.0.0/28")
	obj.Spec.Priority = 5
	status, again := obj.DeepCopy(), obj.DeepCopy()
	status.Status.Nodes, status.ResourceVersion, again.UID = 1, "9", "another"
	reserving := fixtures.Edited(obj, func(s *v1alpha1.PodIPPoolSpec) { s.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.0/29"}} })
	bad := fixtures.Invalidated(reserving)
	fixed := fixtures.Edited(bad, func(s *v1alpha1.PodIPPoolSpec) { s.IPv4.CIDRs[0].CIDR = "10.0.0.0/28" })
	thresholds := fixtures.Edited(fixed, func(s *v1alpha1.PodIPPoolSpec) {
		s.Expand.ThresholdPercent, s.Reclaim.ThresholdPercent = ptr.To[int32](80), ptr.To[int32](85)
	})
	cut, _ := fixtures.PoolOf(t, obj).Cut(ipalloc.IPv4)
	ledger := ReadyLedger()
	pools := NewPools(fixtures.Defaults(), ledger)
	pools.Set(other)
	for _, step := range []struct {
		name    string
		set     *v1alpha1.PodIPPool // nil: it is deleted
		news    bool
		free    uint64
		rules   string
		invalid string
	}{
		{"a new one", obj, true, 4, "p", ""},
		{"its status", status, false, 4, "p", ""},
		{"another of its name", again, true, 4, "p", ""},
		{"it reserves a range", reserving, true, 2, "p", ""},
		{"invalid", bad, true, 2, "q", "spec.ipv4"},
		{"fixed", fixed, true, 2, "p", ""},
		{"contradicting thresholds", thresholds, true, 2, "p", "spec.reclaim.thresholdPercent"},
		{"being deleted", fixtures.BeingDeleted(thresholds), true, 2, "q", "spec.reclaim.thresholdPercent"},
		{"deleted", nil, false, 4, "q", ""},
	} {
		restarted := NewPools(fixtures.Defaults(), ReadyLedger())
		restarted.Set(other)
		if step.set == nil {
			pools.Delete("p")
		} else if restarted.Set(step.set); pools.Set(step.set) != step.news {
			t.Errorf("%s: news %t", step.name, !step.news)
		}
		if got := ledger.Free(cut); got != step.free {
			t.Errorf("%s: %d blocks are free, want %d", step.name, got, step.free)
		}
		for _, pools := range []*Pools{pools, restarted} {
			if got := crd.ForFamily(pools.Match(nil), ipalloc.IPv4, ""); got[0].Name != step.rules {
				t.Errorf("%s: pool %s rules", step.name, got[0].Name)
			}
			if err := pools.Invalid("p"); (err != nil) != (step.invalid != "") || err != nil && !strings.Contains(err.Error(), step.invalid) {
				t.Errorf("%s: its fault is %v", step.name, err)
			}
			if p := pools.Get("p"); (p == nil) != (step.set == nil) || p != nil && (p.Frozen() != (step.set == bad) || p.Paused) {
				t.Errorf("%s: the pool is %+v", step.name, p)
			}
		}
	}
}

// An edit of a pool looks at the pins of that pool alone, of however many others there are, overlapping or not.
func TestPoolEditLooksAtItsPinsAlone(t *testing.T) {
	ledger := ReadyLedger()
	pools := NewPools(fixtures.Defaults(), ledger)
	edited := fixtures.PodIPPool("edited", 4, "10.9.0.0/28")
	pools.Set(edited)
	pools.Set(fixtures.PodIPPool("other", 1, "10.0.0.0/24"))
	pools.Set(fixtures.PodIPPool("closed", 2, "10.0.0.0/24", "10.1.0.0/24"))
	pins := []string{"10.9.0.0/30", "10.0.0.0/30", "10.0.0.4/30", "10.1.0.0/30"}
	for _, cidr := range pins {
		ledger.Pins.Set(crd.Pin{CIDR: fixtures.Prefix(cidr), Node: "n"})
	}
	if len(ledger.Pins.enforced) != len(pins) {
		t.Fatalf("in force are %v", ledger.Pins.enforced)
	}
	clear(ledger.Pins.enforced) // a look at a pin notes it again
	pools.Set(fixtures.Edited(edited, func(s *v1alpha1.PodIPPoolSpec) { s.Priority = 3 }))
	if want := map[netip.Prefix]bool{fixtures.Prefix(pins[0]): true}; !maps.Equal(ledger.Pins.enforced, want) {
		t.Errorf("looked at %v, want %v", ledger.Pins.enforced, want)
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

// Pools and the ledger acquire each other's locks in one order only.
func TestPoolsAndLedgerDoNotDeadlock(t *testing.T) {
	ledger := ReadyLedger()
	pools := NewPools(fixtures.Defaults(), ledger)
	var all sync.WaitGroup
	for _, do := range []func(i int){
		func(i int) {
			obj := fixtures.PodIPPool("p", 1, "10.0.0.0/24")
			obj.Generation = int64(i)
			pools.Set(obj)
		},
		func(i int) { ledger.Upsert(fixtures.Block("10.0.0.0/30", "p", "n", i+1)); ledger.Free(ipalloc.Cut{}) },
		func(int) {
			if cidr, _, err := ledger.Claim(ipalloc.IPv4, "n", "", pools.Match(nil)); err == nil {
				ledger.Forget("n", cidr)
			}
		},
	} {
		all.Go(func() {
			for i := range 200 {
				do(i)
			}
		})
	}
	all.Wait()
}

// When the pressure of a pool changes, only nodes with an idle block of it are reconciled, and only
// if it changes the block's wait.
func TestPressureWakesIdleNodes(t *testing.T) {
	p := NewPressure()
	ipv4Pools := func(pools ...string) [2][]string { return [2][]string{ipalloc.IPv4: pools} }
	p.SetIdle("idle", ipv4Pools("q", "p"))
	p.SetIdle("busy", ipv4Pools("p"))
	p.SetIdle("busy", ipv4Pools())
	p.SetIdle("of another pool", ipv4Pools("q"))
	p.SetIdle("of another family", [2][]string{ipalloc.IPv6: {"p"}})
	var woken []string
	p.Changed = func(nodes []string) { woken = nodes }
	pool := fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	for _, step := range []struct {
		taken int
		wakes bool
	}{{50, false}, {89, false}, {90, true}, {90, false}, {95, true}, {80, true}, {79, false}} {
		woken = nil
		p.Set(pool, ipalloc.IPv4, step.taken)
		if got := slices.Equal(woken, []string{"idle"}); got != step.wakes || len(woken) > 1 {
			t.Errorf("%d%% taken wakes %v", step.taken, woken)
		}
	}
}

// An event of a pool concerns the pins in its CIDRs, and those in CIDRs that it closes or opens elsewhere.
func TestChangeOfOnePoolAmongMany(t *testing.T) {
	const all, each = 50, 4
	l := ReadyLedger()
	pools := NewPools(fixtures.Defaults(), l)
	name := func(i int) string { return fmt.Sprint("p", i) }
	spec := func(i int, edits ...func(*v1alpha1.PodIPPoolSpec)) *v1alpha1.PodIPPool {
		pool := fixtures.PodIPPool(name(i), 1, fmt.Sprintf("10.0.%d.0/24", i))
		for _, edit := range edits {
			pool = fixtures.Edited(pool, edit)
		}
		return pool
	}
	for i := range all {
		for j := range each {
			l.Pins.Set(crd.Pin{CIDR: fixtures.Prefix(fmt.Sprintf("10.0.%d.%d/30", i, 4*j)), Node: name(i)})
		}
	}
	for i := range all {
		pools.Set(spec(i))
	}
	if len(l.Pins.enforced) != all*each {
		t.Fatalf("%d pins are in force, want all %d", len(l.Pins.enforced), all*each)
	}
	before := pools.all()
	pools.Set(spec(7, func(s *v1alpha1.PodIPPoolSpec) { s.IPv4.BlockSize = 29 }))
	changed := changedPools(pools.all(), before)
	if len(changed) != 1 || changed[0].Name != name(7) || len(l.Pins.inPool(changed[0])) != each {
		t.Errorf("%d pools have changed, and %d pins are concerned", len(changed), len(l.Pins.inPool(changed[0])))
	}
	if len(l.Pins.enforced) != (all-1)*each {
		t.Errorf("%d pins are in force, want none of /30 in blocks of /29", len(l.Pins.enforced))
	}
	pools.Delete(name(8))
	pools.Set(fixtures.PodIPPool("q", 2, "10.0.8.0/23")) // p9 is older
	if l.Pins.enforced[fixtures.Prefix("10.0.8.0/30")] || !l.Pins.enforced[fixtures.Prefix("10.0.9.0/30")] {
		t.Error("the pins are in force as before")
	}
	pools.Delete(name(9))
	if !l.Pins.enforced[fixtures.Prefix("10.0.8.0/30")] || !l.Pins.enforced[fixtures.Prefix("10.0.9.0/30")] {
		t.Error("the pins are not in force in q")
	}
}
