package node

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/metrics"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
)

// The series are those of the nodes that have not been forgotten, each with its last size.
func TestSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s, want := newSizes(), map[string]float64{}
	for i := range 500 {
		node, f := fmt.Sprint("n", r.IntN(8)), ipalloc.Families()[r.IntN(2)]
		demand, capacity := fmt.Sprintf("cilium_pool_node_demand_addresses %s %s", f, node), fmt.Sprintf("cilium_pool_node_capacity_addresses %s %s", f, node)
		if r.IntN(3) == 0 {
			s.forget(node, f)
			delete(want, demand)
			delete(want, capacity)
		} else {
			s.set(nodeSize{sizeKey{node, f}, i, i + 1})
			want[demand], want[capacity] = float64(i), float64(i+1)
		}
		if diff := cmp.Diff(want, fakeapi.Series(t, s)); diff != "" {
			t.Fatalf("after %d steps (-want +got):\n%s", i, diff)
		}
	}
	for key := range maps.Clone(s.at) {
		s.forget(key.node, key.family)
	}
	if len(s.all)+len(s.at)+len(fakeapi.Series(t, s)) > 0 {
		t.Errorf("all forgotten, it remembers %v", s.all)
	}
}

// BenchmarkScrape gathers what 20,000 nodes need and have, from sizes and, for comparison, from
// gauges, as before.
func BenchmarkScrape(b *testing.B) {
	const nodes = 20_000
	s := newSizes()
	demand, capacity := metrics.Gauge("demand", "", "node", "family"), metrics.Gauge("capacity", "", "node", "family")
	for i := range nodes {
		node := fmt.Sprintf("ip-10-200-%d-%d.eu-west-1.compute.internal", i/256, i%256)
		s.set(nodeSize{sizeKey{node, ipalloc.IPv4}, i, i})
		demand.WithLabelValues(node, "ipv4").Set(float64(i))
		capacity.WithLabelValues(node, "ipv4").Set(float64(i))
	}
	for name, collectors := range map[string][]prometheus.Collector{"sizes": {s}, "gauges": {demand, capacity}} {
		b.Run(name, func(b *testing.B) {
			r := prometheus.NewRegistry()
			r.MustRegister(collectors...)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
