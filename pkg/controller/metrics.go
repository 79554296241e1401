package controller

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
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
	claims     *prometheus.CounterVec
	releases   *prometheus.CounterVec
	growth     *prometheus.GaugeVec
	exhaustion *prometheus.GaugeVec
	room       *prometheus.GaugeVec
	build      *prometheus.GaugeVec
	schemas    *prometheus.GaugeVec
	shadow     *prometheus.GaugeVec
	awaited    prometheus.Gauge
	unselected *prometheus.GaugeVec
	phasing    *prometheus.GaugeVec
	waiting    *waiting
}

// Results of a claim.
const (
	claimOK        = "ok"
	claimTaken     = "taken" // another writer claimed it first
	claimExhausted = "exhausted"
	claimError     = "error"
)

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
		poolReady:  gauge("pool_ready", "1 while a pool gives out everything its spec says, or is being deleted; else 0.", "pool"),
		claims:     counter("claims_total", "Claims of blocks, by result: ok, taken, exhausted, error.", "pool", "family", "result"),
		releases:   counter("releases_total", "Blocks given up after they rested, by why they did: Returned, NodeGone.", "pool", "family", "reason"),
		growth:     gauge("pool_growth_blocks_per_hour", "By how many blocks more are held each hour, bursts aside.", "pool", "family"),
		exhaustion: gauge("pool_exhaustion_timestamp_seconds", "When a pool is expected to have no free block left. No series: that is not expected within a week.", "pool", "family"),
		room:       gauge("pool_room_nodes", "How many more nodes fit into a pool.", "pool", "family"),
		build:      gauge("build_info", "1; the labels tell the build.", "version", "commit", "goversion"),
		shadow:     gauge("shadow_difference", "What the operator would do on a node if it did not run in shadow: adopt (CIDRs), claim (families), drain and free (blocks).", "node", "what"),
		phasing:    gauge("pool_phasing_out", "1 while a pool is to give out no new blocks: it is being deleted, or all its CIDRs are cordoned or drain. No series: it is not.", "pool", "family"),
		unselected: gauge("node_without_pool", "1 while no PodIPPool selects a node. No series: one does, or Cilium does not run there.", "node"),
		awaited: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "cilium_pool", Name: "prerequisites_missing",
			Help: "CRDs that the operator waits for before it assigns any address.",
		}),
		schemas: gauge("crd_schema_differs", "1 while the API server serves a CRD with another schema than the operator was built with, or the operator may not read it; else 0.", "crd"),
		waiting: newWaiting(),
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
		m.poolBlocks, m.poolIPs, m.poolNodes, m.poolReady,
		m.claims, m.releases, m.growth, m.exhaustion, m.room, m.build, m.shadow, m.awaited, m.unselected, m.phasing, m.schemas, m.waiting}
}

// schemaDiffers records whether a served CRD differs from the one this operator was
// built with.
func (m *Metrics) schemaDiffers(crd string, differs bool) {
	is := 0.0
	if differs {
		is = 1
	}
	m.schemas.WithLabelValues(crd).Set(is)
}

// missing sets how many prerequisites the operator waits for.
func (m *Metrics) missing(n int) { m.awaited.Set(float64(n)) }

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

// sized records what a node needs and has, over all Cilium pools.
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

// claimed counts a claim and its result.
func (m *Metrics) claimed(pool string, f ipalloc.Family, result string) {
	m.claims.WithLabelValues(pool, f.String(), result).Inc()
	if result == claimOK {
		m.decisions.WithLabelValues(f.String(), "claim").Inc()
	}
}

// released counts a released block.
func (m *Metrics) released(b crd.Block) {
	m.releases.WithLabelValues(b.Pool, ipalloc.FamilyOf(b.CIDR.Addr()).String(), string(b.Reason)).Inc()
}

// foresee records the forecast of a pool.
func (m *Metrics) foresee(pool string, seen []Foresight, now time.Time) {
	for _, f := range seen {
		family := f.Family.String()
		m.room.WithLabelValues(pool, family).Set(float64(f.Room))
		if f.Over > 0 {
			m.growth.WithLabelValues(pool, family).Set(f.PerHour)
		}
		if f.Expected {
			m.exhaustion.WithLabelValues(pool, family).Set(float64(now.Add(f.Left).Unix()))
		} else {
			m.exhaustion.DeleteLabelValues(pool, family)
		}
	}
}

// built records the version and commit of this build.
func (m *Metrics) built(version, commit string) {
	m.build.WithLabelValues(version, commit, runtime.Version()).Set(1)
}

func (m *Metrics) handshake(step string, n int) {
	if n > 0 {
		m.steps.WithLabelValues(step).Add(float64(n))
	}
}

// wrote counts a write and returns its error.
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

// forget drops the series of a node and family that are no longer decided on.
func (m *Metrics) forget(node string, f ipalloc.Family) {
	for _, g := range []*prometheus.GaugeVec{m.demand, m.capacity, m.shortages} {
		g.DeleteLabelValues(node, f.String())
	}
	m.waiting.forget(node, f)
}

// shadowed records what the operator would change on a node.
func (m *Metrics) shadowed(node string, d difference) {
	for what, n := range d.kinds() {
		m.shadow.WithLabelValues(node, what).Set(float64(n))
	}
}

// phasesOut records whether a family of a pool assigns no new blocks.
func (m *Metrics) phasesOut(pool string, f ipalloc.Family, does bool) {
	if !does {
		m.phasing.DeleteLabelValues(pool, f.String())
		return
	}
	m.phasing.WithLabelValues(pool, f.String()).Set(1)
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

// forgetPool drops the series of a pool that is gone.
func (m *Metrics) forgetPool(pool string) {
	of := prometheus.Labels{"pool": pool}
	for _, g := range []*prometheus.GaugeVec{m.poolBlocks, m.poolIPs, m.poolNodes, m.poolReady, m.growth, m.exhaustion, m.room, m.phasing} {
		g.DeletePartialMatch(of)
	}
	m.claims.DeletePartialMatch(of)
	m.releases.DeletePartialMatch(of)
}
