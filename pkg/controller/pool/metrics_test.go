package pool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// The series of a pool are deleted with it.
func TestPoolSeries(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	shared, err := common.NewCounters(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	all := []prometheus.Collector{shared.Claims, shared.Releases}
	for _, g := range m.all() {
		all = append(all, g)
	}
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/27")
	pool.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/120"}}}
	free := func(f ipalloc.Family, n int64) state.FamilyUsage {
		return state.FamilyUsage{Family: f, Status: v1alpha1.FamilyStatus{Blocks: v1alpha1.StateCounts{Free: n}}}
	}
	least := m.ShowRoom(fixtures.PoolOf(t, pool), []state.FamilyUsage{free(ipalloc.IPv4, 7), free(ipalloc.IPv6, 4)})
	want := map[string]float64{"cilium_pool_pool_room_nodes ipv4 p": 2, "cilium_pool_pool_room_nodes ipv6 p": 1}
	if diff := cmp.Diff(want, fakeapi.Series(t, all...)); diff != "" || *least != 1 {
		t.Errorf("room for %d nodes (-want +got):\n%s", *least, diff)
	}
	shared.CountClaim("p", ipalloc.IPv4, common.ClaimTaken)
	shared.CountFreed(crd.Block{Pool: "p", CIDR: fixtures.Prefix("10.0.0.0/30"), Reason: v1alpha1.ReasonReturned})
	m.Forget("p")
	shared.ForgetPool("p")
	if got := fakeapi.Series(t, all...); len(got) > 0 {
		t.Errorf("the pool is gone, and there is %v", got)
	}
}

// The metrics of a pool being phased out raise no alert about an intended state.
func TestPhasedOutPoolSeries(t *testing.T) {
	b := newBed(t, fixtures.Finalized(withPolicy(fixtures.PodIPPool("p", 1, "10.0.0.0/28"), v1alpha1.AllocationDrain)))
	b.poolLook()
	of := func() map[string]float64 { return fakeapi.Series(t, b.r.Metrics.phasing, b.r.Metrics.ready) }
	want := map[string]float64{"cilium_pool_pool_phasing_out ipv4 p": 1, "cilium_pool_pool_ready p": 1}
	if diff := cmp.Diff(want, of()); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	if len(b.EventsOf(event.ReasonPoolEmpty)) != 1 {
		t.Error("no event reports that the pool is empty")
	}
	b.r.Metrics.Forget("p")
	if got := of(); len(got) > 0 {
		t.Errorf("the pool is gone, and there is %v", got)
	}
}
