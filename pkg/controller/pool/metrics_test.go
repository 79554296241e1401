package pool

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/metrics"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/forecast"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// The series of a pool, and of its forecast, are deleted with it.
func TestForecastSeries(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	shared, err := metrics.NewShared(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	all := []prometheus.Collector{shared.Claims, shared.Releases}
	for _, g := range m.all() {
		all = append(all, g)
	}
	soon := Foresight{Family: ipalloc.IPv4, Room: 7, Estimate: forecast.Estimate{Over: time.Hour, PerHour: 9, Expected: true, Left: time.Minute}}
	m.foresee("p", []Foresight{soon}, fixtures.Noon())
	want := map[string]float64{
		"cilium_pool_pool_room_nodes ipv4 p":                   7,
		"cilium_pool_pool_growth_blocks_per_hour ipv4 p":       9,
		"cilium_pool_pool_exhaustion_timestamp_seconds ipv4 p": float64(fixtures.Noon().Unix()) + 60,
	}
	if diff := cmp.Diff(want, fakeapi.Series(t, all...)); diff != "" {
		t.Errorf("growing (-want +got):\n%s", diff)
	}
	soon.Expected, soon.PerHour = false, 0
	m.foresee("p", []Foresight{soon}, fixtures.Noon())
	delete(want, "cilium_pool_pool_exhaustion_timestamp_seconds ipv4 p")
	want["cilium_pool_pool_growth_blocks_per_hour ipv4 p"] = 0
	if diff := cmp.Diff(want, fakeapi.Series(t, all...)); diff != "" {
		t.Errorf("resting (-want +got):\n%s", diff)
	}
	shared.Claimed("p", ipalloc.IPv4, metrics.ClaimTaken)
	shared.Released(crd.Block{Pool: "p", CIDR: fixtures.Prefix("10.0.0.0/30"), Reason: v1alpha1.ReasonReturned})
	m.forget("p")
	shared.ForgetPool("p")
	if got := fakeapi.Series(t, all...); len(got) > 0 {
		t.Errorf("the pool is gone, and there is %v", got)
	}
}
