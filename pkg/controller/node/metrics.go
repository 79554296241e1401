package node

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
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
	silent     *prometheus.GaugeVec
	offered    *prometheus.GaugeVec
	drains     *drainMetrics
	pools      *poolNodes
	growths    *prometheus.HistogramVec
	podWaits   *prometheus.HistogramVec
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
		silent:     common.Gauge("node_agent_silent", "1 while the node agent of a node, where Cilium's agent runs, has never reported. No series: it has.", "node"),
		offered:    common.Gauge("node_offered_addresses", "Addresses that a Node offers to pods that request one. No series: it does not offer any by a resource.", "node", "family"),
		drains:     newDrainMetrics(),
		pools:      newPoolNodes(),
		growths:    common.Histogram("growth_seconds", "Time from a node's need of another block until its addresses are published. While no pool has a free block it does not run.", waitBuckets(), "family"),
		podWaits:   common.Histogram("pod_address_wait_seconds", "Time from the bind of a pod until its node has an address for it, of pods that found none there.", waitBuckets(), "family"),
	}
	return m, common.Register(r, m.decisions, m.steps, m.demand, m.capacity, m.shortages, m.shadow, m.unselected, m.silent, m.offered, m.drains, m.pools, m.growths, m.podWaits)
}

func (m *Metrics) decided(f ipalloc.Family, p expand.Plan) {
	count := func(decision string, n int) {
		if n > 0 {
			m.decisions.WithLabelValues(f.String(), decision).Add(float64(n))
		}
	}
	count("undrain", len(p.Undrain))
	count("drain", len(p.Drain))
	count("free", len(p.CoolDown))
	count("delete", len(p.Delete))
}

// sized records the needs and holdings of a node, over all Cilium pools.
func (m *Metrics) sized(node string, decisions []decision) {
	var demand, capacity [2]int
	for _, d := range decisions {
		demand[d.Family] += d.plan.Demand
		capacity[d.Family] += d.plan.Capacity
	}
	for _, d := range decisions {
		m.Show(node, d.Family, demand[d.Family], capacity[d.Family])
	}
}

// Show sets the addresses that a node needs and has.
func (m *Metrics) Show(node string, f ipalloc.Family, demand, capacity int) {
	m.demand.WithLabelValues(node, f.String()).Set(float64(demand))
	m.capacity.WithLabelValues(node, f.String()).Set(float64(capacity))
}

func (m *Metrics) handshake(step string, n int) {
	if n > 0 {
		m.steps.WithLabelValues(step).Add(float64(n))
	}
}

// setUnless sets a series, or deletes it where n has the value that stands for no series.
func setUnless(absent int, g *prometheus.GaugeVec, n int, labels ...string) {
	if n == absent {
		g.DeleteLabelValues(labels...)
		return
	}
	g.WithLabelValues(labels...).Set(float64(n))
}

// Forget drops the series of a node and family that are no longer decided on.
func (m *Metrics) Forget(node string, f ipalloc.Family) {
	for _, g := range []*prometheus.GaugeVec{m.demand, m.capacity, m.shortages, m.offered} {
		g.DeleteLabelValues(node, f.String())
	}
	m.forgetShares(node, func(share state.ShareKey) bool { return share.Family == f })
}

// forgetShares drops what is kept of some shares of a node.
func (m *Metrics) forgetShares(node string, matches func(state.ShareKey) bool) {
	m.drains.forget(node, matches)
	m.pools.forget(node, matches)
}

// shadowed records the changes that the operator would make on a node.
func (m *Metrics) shadowed(node string, d difference) {
	for kind, n := range d.kinds() {
		m.shadow.WithLabelValues(node, kind).Set(float64(n))
	}
}

// setIf sets a node's series to 1, or deletes it.
func setIf(isSet bool, g *prometheus.GaugeVec, node string) {
	setUnless(0, g, int(common.OneIf(isSet)), node)
}

// drainMetrics aggregates the obstacles to the drains of all nodes by pool, on each scrape: the number
// of series grows with pools and reasons, not with nodes.
type drainMetrics struct {
	blocks, marks *prometheus.Desc

	mu    sync.Mutex
	nodes byShare[nodeDrains]
}

// nodeDrains is the obstacles to one family of a node.
type nodeDrains struct {
	blocks map[obstacleKey]int
	// pool rules the node; its agent has answered no mark since unanswered.
	pool       string
	unanswered time.Time // zero: no answer is due
}

type obstacleKey struct {
	pool   string
	reason expand.WaitReason
}

func newDrainMetrics() *drainMetrics {
	return &drainMetrics{
		blocks: prometheus.NewDesc("cilium_pool_drain_wait_blocks", "Blocks that drain or must drain, by what they wait for: the reasons of the event DrainWaits.", []string{"pool", "family", "reason"}, nil),
		marks:  prometheus.NewDesc("cilium_pool_mark_unanswered_timestamp_seconds", "Since when the agent of a node of the pool has not answered marks for release; the oldest. No series: all have answered.", []string{"pool", "family"}, nil),
		nodes:  byShare[nodeDrains]{},
	}
}

// Describe implements prometheus.Collector.
func (w *drainMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- w.blocks
	out <- w.marks
}

// Collect implements prometheus.Collector.
func (w *drainMetrics) Collect(out chan<- prometheus.Metric) {
	type series struct {
		obstacleKey
		family ipalloc.Family
	}
	blocks := map[series]int{}
	oldest := map[series]time.Time{}
	w.mu.Lock()
	for _, node := range w.nodes {
		for key, n := range node {
			for k, count := range n.blocks {
				blocks[series{k, key.Family}] += count
			}
			at := series{obstacleKey{pool: n.pool}, key.Family}
			if old, ok := oldest[at]; !n.unanswered.IsZero() && (!ok || n.unanswered.Before(old)) {
				oldest[at] = n.unanswered
			}
		}
	}
	w.mu.Unlock()
	for s, n := range blocks {
		out <- prometheus.MustNewConstMetric(w.blocks, prometheus.GaugeValue, float64(n), s.pool, s.family.String(), string(s.reason))
	}
	for s, since := range oldest {
		out <- prometheus.MustNewConstMetric(w.marks, prometheus.GaugeValue, float64(since.Unix()), s.pool, s.family.String())
	}
}

// set records the obstacles of a plan for a share of a node, and whether it marks addresses. poolOf returns
// the pool of the block that an obstacle names.
func (w *drainMetrics) set(share *state.Share, obstacles []expand.Obstacle, marks bool, node string, poolOf func(expand.Obstacle) string, now time.Time) {
	key := share.Key(node)
	n := nodeDrains{pool: share.Ruling()}
	marked, answered := marksOf(&share.State)
	awaitsAnswer := marks || marked
	w.mu.Lock()
	defer w.mu.Unlock()
	if awaitsAnswer {
		n.unanswered = w.nodes[node][key].unanswered
		if answered || n.unanswered.IsZero() {
			n.unanswered = now
		}
	}
	if len(obstacles) == 0 && !awaitsAnswer {
		w.nodes.drop(key)
		return
	}
	n.blocks = map[obstacleKey]int{}
	for _, obstacle := range obstacles {
		n.blocks[obstacleKey{poolOf(obstacle), obstacle.Reason}]++
	}
	w.nodes.set(key, n)
}

// pause keeps the waits of a share, and expects no answer to marks.
func (w *drainMetrics) pause(node string, share state.ShareKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n, known := w.nodes[node][share]; known {
		n.unanswered = time.Time{}
		w.nodes.set(share, n)
	}
}

// marksOf reports whether addresses are marked for release, and whether the agent has answered a
// mark. An unanswered mark is withdrawn and set again, so the age of a single mark is meaningless.
func marksOf(s *expand.State) (marked, answered bool) {
	for addr, status := range s.Release {
		if ipalloc.FamilyOf(addr) != s.Family {
			continue
		}
		marked = marked || status == expand.Marked
		answered = answered || status.IsAnswer()
	}
	return marked, answered
}

// forget drops the waits of some shares of a node.
func (w *drainMetrics) forget(node string, matches func(state.ShareKey) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes.forget(node, matches)
}
