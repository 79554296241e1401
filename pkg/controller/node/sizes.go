package node

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/metrics"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// sizes are what each node needs and has. They become series on a scrape only: a gauge takes eight
// objects in memory, all of which every garbage collection visits. A scrape copies all sizes, in one
// piece of memory, under the lock.
type sizes struct {
	demand, capacity *prometheus.Desc

	mu  sync.Mutex
	all []nodeSize
	// at is where in all the size of a family of a node is.
	at map[sizeKey]int
}

type sizeKey struct {
	node   string
	family ipalloc.Family
}

// nodeSize is what a node needs and has of one family, in addresses.
type nodeSize struct {
	sizeKey

	demand, capacity int
}

func newSizes() *sizes {
	return &sizes{
		demand:   metrics.Desc("node_demand_addresses", "Addresses a node needs now: those in use, and pods without one.", "node", "family"),
		capacity: metrics.Desc("node_capacity_addresses", "Addresses a node can use.", "node", "family"),
		at:       map[sizeKey]int{},
	}
}

// Describe implements prometheus.Collector.
func (s *sizes) Describe(out chan<- *prometheus.Desc) {
	out <- s.demand
	out <- s.capacity
}

// Collect implements prometheus.Collector.
func (s *sizes) Collect(out chan<- prometheus.Metric) {
	for _, size := range s.copied() {
		family := size.family.String()
		out <- prometheus.MustNewConstMetric(s.demand, prometheus.GaugeValue, float64(size.demand), size.node, family)
		out <- prometheus.MustNewConstMetric(s.capacity, prometheus.GaugeValue, float64(size.capacity), size.node, family)
	}
}

func (s *sizes) copied() []nodeSize {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func (s *sizes) set(size nodeSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, there := s.at[size.sizeKey]
	if !there {
		i = len(s.all)
		s.at[size.sizeKey] = i
		s.all = append(s.all, nodeSize{})
	}
	s.all[i] = size
}

func (s *sizes) forget(node string, f ipalloc.Family) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sizeKey{node, f}
	i, there := s.at[key]
	if !there {
		return
	}
	last := len(s.all) - 1
	s.at[s.all[last].sizeKey] = i
	s.all[i], s.all[last] = s.all[last], nodeSize{}
	s.all = s.all[:last]
	delete(s.at, key)
}
