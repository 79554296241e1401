package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
)

// Metrics are the metrics of nodes.
type Metrics struct {
	decisions  *prometheus.CounterVec
	steps      *prometheus.CounterVec
	demand     *prometheus.GaugeVec
	capacity   *prometheus.GaugeVec
	shortages  *prometheus.GaugeVec
	shadow     *prometheus.GaugeVec
	unselected *prometheus.GaugeVec
	offered    *prometheus.GaugeVec
	waiting    *waiting
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		decisions:  common.Counter("decisions_total", "Blocks claimed, and blocks decided on: undrain, drain, free, delete.", "family", "decision"),
		steps:      common.Counter("address_steps_total", "Addresses taken through a step: publish, mark, retire, clear, remove.", "step"),
		demand:     common.Gauge("node_demand_addresses", "Addresses a node needs now: those in use, and pods without one.", "node", "family"),
		capacity:   common.Gauge("node_capacity_addresses", "Addresses a node can use.", "node", "family"),
		shortages:  common.Gauge("node_shortage_addresses", "Addresses that pods of a node wait for and cannot get. The reserve does not count.", "node", "family"),
		shadow:     common.Gauge("shadow_difference", "What the operator would do on a node if it did not run in shadow mode: adopt (CIDRs), claim (families), drain and free (blocks).", "node", "what"),
		unselected: common.Gauge("node_without_pool", "1 while no PodIPPool selects a node, or none has a family that its agent runs. No series: it is served, or Cilium does not run there.", "node"),
		offered:    common.Gauge("node_offered_addresses", "Addresses that a Node offers to pods that request one. No series: it does not offer any by a resource.", "node", "family"),
		waiting:    newWaiting(),
	}
	return m, common.Register(r, m.decisions, m.steps, m.demand, m.capacity, m.shortages, m.shadow, m.unselected, m.offered, m.waiting)
}

func (m *Metrics) decided(f ipalloc.Family, p expand.Plan) {
	count := func(decision string, n int) {
		if n > 0 {
			m.decisions.WithLabelValues(f.String(), decision).Add(float64(n))
		}
	}
	count("undrain", len(p.Undrain))
	count("drain", len(p.Drain))
	count("free", len(p.Free))
	count("delete", len(p.Delete))
}

// sized records the needs and holdings of a node, over all Cilium pools.
func (m *Metrics) sized(node string, plans []familyPlan) {
	var demand, capacity [2]int
	for _, p := range plans {
		demand[p.Family] += p.plan.Demand
		capacity[p.Family] += p.plan.Capacity
	}
	for _, p := range plans {
		m.demand.WithLabelValues(node, p.Family.String()).Set(float64(demand[p.Family]))
		m.capacity.WithLabelValues(node, p.Family.String()).Set(float64(capacity[p.Family]))
	}
}

func (m *Metrics) handshake(step string, n int) {
	if n > 0 {
		m.steps.WithLabelValues(step).Add(float64(n))
	}
}

func (m *Metrics) short(node string, f ipalloc.Family, n int) {
	if n == 0 {
		m.shortages.DeleteLabelValues(node, f.String())
		return
	}
	m.shortages.WithLabelValues(node, f.String()).Set(float64(n))
}

// offers records the number of addresses of a family that a Node should offer.
func (m *Metrics) offers(node string, f ipalloc.Family, n int) {
	if n == scheduling.NoOffer {
		m.offered.DeleteLabelValues(node, f.String())
		return
	}
	m.offered.WithLabelValues(node, f.String()).Set(float64(n))
}

// forget drops the series of a node and family that are no longer decided on.
func (m *Metrics) forget(node string, f ipalloc.Family) {
	for _, g := range []*prometheus.GaugeVec{m.demand, m.capacity, m.shortages, m.offered} {
		g.DeleteLabelValues(node, f.String())
	}
	m.waiting.forget(node, f)
}

// shadowed records the changes that the operator would make on a node.
func (m *Metrics) shadowed(node string, d difference) {
	for what, n := range d.kinds() {
		m.shadow.WithLabelValues(node, what).Set(float64(n))
	}
}

// withoutPool records whether no pool selects a node.
func (m *Metrics) withoutPool(node string, is bool) {
	if !is {
		m.unselected.DeleteLabelValues(node)
		return
	}
	m.unselected.WithLabelValues(node).Set(1)
}

func (m *Metrics) forgetShadow(node string) {
	m.shadow.DeletePartialMatch(prometheus.Labels{"node": node})
}

// claimed counts a claimed block.
func (m *Metrics) claimed(f ipalloc.Family) {
	m.decisions.WithLabelValues(f.String(), "claim").Inc()
}
