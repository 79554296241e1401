package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Metrics are the operator's own; docs/metrics.md lists them.
type Metrics struct {
	decisions  *prometheus.CounterVec
	steps      *prometheus.CounterVec
	writes     *prometheus.CounterVec
	demand     *prometheus.GaugeVec
	capacity   *prometheus.GaugeVec
	shortages  *prometheus.GaugeVec
	poolBlocks *prometheus.GaugeVec
	poolIPs    *prometheus.GaugeVec
	poolNodes  *prometheus.GaugeVec
	poolReady  *prometheus.GaugeVec
}

// NewMetrics registers the operator's metrics with r.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "cilium_pool", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "cilium_pool", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		decisions:  counter("decisions_total", "Blocks claimed, and blocks decided on: undrain, drain, free, delete.", "family", "decision"),
		steps:      counter("address_steps_total", "Addresses taken through a step: publish, mark, clear, remove.", "step"),
		writes:     counter("api_writes_total", "Writes sent to the API server, by kind of object, what for, and result: ok, conflict, error.", "kind", "write", "result"),
		demand:     gauge("node_demand_addresses", "Addresses a node needs now: those in use, and pods without one.", "node", "family"),
		capacity:   gauge("node_capacity_addresses", "Addresses a node can use.", "node", "family"),
		shortages:  gauge("node_shortage_addresses", "Addresses a node wants and cannot get.", "node", "family"),
		poolBlocks: gauge("pool_blocks", "Blocks of a pool, by state: total, in_service, draining, cooling_down, free.", "pool", "family", "state"),
		poolIPs:    gauge("pool_addresses", "Addresses of a pool that can be given to pods, by the state of their block: total, in_service, draining, cooling_down, free.", "pool", "family", "state"),
		poolNodes:  gauge("pool_nodes", "Nodes that hold a block of a pool.", "pool"),
		poolReady:  gauge("pool_ready", "1 while a pool gives out everything its spec says, else 0.", "pool"),
	}
	for _, c := range m.collectors() {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.decisions, m.steps, m.writes, m.demand, m.capacity, m.shortages,
		m.poolBlocks, m.poolIPs, m.poolNodes, m.poolReady}
}

func (m *Metrics) decided(node string, f ipalloc.Family, p expand.Plan) {
	count := func(decision string, n int) {
		if n > 0 {
			m.decisions.WithLabelValues(f.String(), decision).Add(float64(n))
		}
	}
	count("undrain", len(p.Undrain))
	count("drain", len(p.Drain))
	count("free", len(p.Free))
	count("delete", len(p.Delete))
	m.demand.WithLabelValues(node, f.String()).Set(float64(p.Demand))
	m.capacity.WithLabelValues(node, f.String()).Set(float64(p.Capacity))
}

func (m *Metrics) claimed(f ipalloc.Family) {
	m.decisions.WithLabelValues(f.String(), "claim").Inc()
}

func (m *Metrics) handshake(step string, n int) {
	if n > 0 {
		m.steps.WithLabelValues(step).Add(float64(n))
	}
}

// wrote counts a write and hands its error back.
func (m *Metrics) wrote(kind, write string, err error) error {
	result := "ok"
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		result = "conflict"
	case err != nil:
		result = "error"
	}
	m.writes.WithLabelValues(kind, write, result).Inc()
	return err
}

func (m *Metrics) short(node string, f ipalloc.Family, n int) {
	if n == 0 {
		m.shortages.DeleteLabelValues(node, f.String())
		return
	}
	m.shortages.WithLabelValues(node, f.String()).Set(float64(n))
}

// forget drops the series of a node and family that nothing is decided on.
func (m *Metrics) forget(node string, f ipalloc.Family) {
	for _, g := range []*prometheus.GaugeVec{m.demand, m.capacity, m.shortages} {
		g.DeleteLabelValues(node, f.String())
	}
}

// forgetPool drops the series of a pool that is gone.
func (m *Metrics) forgetPool(pool string) {
	for _, g := range []*prometheus.GaugeVec{m.poolBlocks, m.poolIPs, m.poolNodes, m.poolReady} {
		g.DeletePartialMatch(prometheus.Labels{"pool": pool})
	}
}
