package node

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// waiting aggregates the obstacles to the drains of all nodes by pool, on each scrape: the number
// of series grows with pools and reasons, not with nodes.
type waiting struct {
	blocks, marks *prometheus.Desc

	mu    sync.Mutex
	nodes map[string]map[state.ShareKey]nodeWaiting // by node, none of them empty
}

// nodeWaiting is the obstacles to one family of a node.
type nodeWaiting struct {
	blocks map[waitKey]int
	// pool rules the node; its agent has answered no mark since unanswered.
	pool       string
	unanswered time.Time // zero: no answer is due
}

type waitKey struct {
	pool   string
	reason expand.WaitReason
}

func newWaiting() *waiting {
	return &waiting{
		blocks: prometheus.NewDesc("cilium_pool_drain_wait_blocks", "Blocks that drain or must drain, by what they wait for: the reasons of the event DrainWaits.", []string{"pool", "family", "reason"}, nil),
		marks:  prometheus.NewDesc("cilium_pool_mark_unanswered_timestamp_seconds", "Since when the agent of a node of the pool has not answered marks for release; the oldest. No series: all have answered.", []string{"pool", "family"}, nil),
		nodes:  map[string]map[state.ShareKey]nodeWaiting{},
	}
}

// Describe implements prometheus.Collector.
func (w *waiting) Describe(out chan<- *prometheus.Desc) {
	out <- w.blocks
	out <- w.marks
}

// Collect implements prometheus.Collector.
func (w *waiting) Collect(out chan<- prometheus.Metric) {
	type series struct {
		waitKey
		family ipalloc.Family
	}
	blocks, oldest := map[series]int{}, map[series]time.Time{}
	w.mu.Lock()
	for _, node := range w.nodes {
		for key, n := range node {
			for k, count := range n.blocks {
				blocks[series{k, key.Family}] += count
			}
			at := series{waitKey{pool: n.pool}, key.Family}
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

// set records the waits of a plan for one family of a node. poolOf returns the pool of the blocks
// it names.
func (w *waiting) set(p *familyPlan, node string, poolOf func(expand.Wait) string, now time.Time) {
	n := nodeWaiting{pool: p.Ruling()}
	for _, wait := range p.plan.Waits {
		if n.blocks == nil {
			n.blocks = map[waitKey]int{}
		}
		n.blocks[waitKey{poolOf(wait), wait.For}]++
	}
	asked, answered := marks(p.State, p.plan)
	w.mu.Lock()
	defer w.mu.Unlock()
	key := p.Key(node)
	if asked {
		n.unanswered = w.nodes[node][key].unanswered
		if answered || n.unanswered.IsZero() {
			n.unanswered = now
		}
	}
	if n.blocks == nil && !asked {
		w.drop(node, func(other state.ShareKey) bool { return other == key })
		return
	}
	if w.nodes[node] == nil {
		w.nodes[node] = map[state.ShareKey]nodeWaiting{}
	}
	w.nodes[node][key] = n
}

// marks reports whether addresses are, or are about to be, marked for release, and
// whether the agent has answered a mark. An unanswered mark is withdrawn and set again,
// so the age of a single mark is meaningless.
func marks(s expand.State, p expand.Plan) (asked, answered bool) {
	asked = len(p.Mark) > 0
	for addr, status := range s.Release {
		if ipalloc.FamilyOf(addr) != s.Family {
			continue
		}
		asked = asked || status == expand.Marked
		answered = answered || status.IsAnswer()
	}
	return asked, answered
}

func (w *waiting) forget(node string, f ipalloc.Family) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(node, func(key state.ShareKey) bool { return key.Family == f })
}

func (w *waiting) forgetShare(share state.ShareKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(share.Node, func(key state.ShareKey) bool { return key == share })
}

func (w *waiting) forgetNode(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.nodes, node)
}

// drop removes some of the waits of a node. The caller holds w.mu.
func (w *waiting) drop(node string, which func(state.ShareKey) bool) {
	maps.DeleteFunc(w.nodes[node], func(key state.ShareKey, _ nodeWaiting) bool { return which(key) })
	if len(w.nodes[node]) == 0 {
		delete(w.nodes, node)
	}
}
