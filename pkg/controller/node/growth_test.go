package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A growth lasts from the bind of the first pod that needs it until its addresses are published, and a pod waits from its
// bind if it finds no address. The sums are seconds.
func TestWaitsAreMeasured(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"))
	bind := func(sinceNoon time.Duration, pods ...string) {
		for _, pod := range pods {
			b.r.Cluster.Pods.Set(podOn(pod), fixtures.Noon().Add(sinceNoon))
		}
	}
	sums := func(when string, growths, pods float64) {
		t.Helper()
		want := map[string]float64{"cilium_pool_growth_seconds ipv4": growths}
		if pods > 0 {
			want["cilium_pool_pod_address_wait_seconds ipv4"] = pods
		}
		if diff := cmp.Diff(want, fakeapi.Series(t, b.r.Metrics.growths, b.r.Metrics.podWaits)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", when, diff)
		}
	}
	b.startAgent()
	b.settle()
	sums("the first blocks", 0, 0)

	bind(10*time.Second, "a", "b")
	b.settleAt(11 * time.Second)
	sums("pods that take the reserve", 1, 0)

	bind(20*time.Second, "c")
	bind(21*time.Second, "d", "e", "f", "g", "h")
	b.settleAt(24 * time.Second)
	sums("pods of which two find no address", 1+4, 2*3)

	bind(40*time.Second, "i", "j", "k", "l", "m", "n", "o")
	b.settleAt(48 * time.Second)
	sums("the last blocks of the pool, and less than the node wants", 1+4, 2*3+3*8)
}
