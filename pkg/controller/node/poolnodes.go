package node

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// poolNodes counts, on each scrape, the nodes that each pool rules, and the short ones among them.
type poolNodes struct {
	ruled, short *prometheus.Desc

	mu    sync.Mutex
	nodes byShare[poolNode]
}

// poolNode is a share of a node.
type poolNode struct {
	pool  string // rules the share
	short bool   // its pods wait for addresses and cannot get them
}

func newPoolNodes() *poolNodes {
	return &poolNodes{
		ruled: prometheus.NewDesc("cilium_pool_pool_ruled_nodes", "Nodes that take their blocks from the pool first.", []string{"pool", "family"}, nil),
		short: prometheus.NewDesc("cilium_pool_pool_short_nodes", "Nodes that the pool rules, and where pods wait for addresses that they cannot get.", []string{"pool", "family"}, nil),
		nodes: byShare[poolNode]{},
	}
}

// Describe implements prometheus.Collector.
func (p *poolNodes) Describe(out chan<- *prometheus.Desc) {
	out <- p.ruled
	out <- p.short
}

// Collect implements prometheus.Collector.
func (p *poolNodes) Collect(out chan<- prometheus.Metric) {
	type series struct {
		pool   string
		family ipalloc.Family
	}
	ruled := map[series]int{}
	short := map[series]int{}
	p.mu.Lock()
	for _, shares := range p.nodes {
		node := map[series]bool{} // one pool may rule several shares
		for key, share := range shares {
			s := series{share.pool, key.Family}
			node[s] = node[s] || share.short
		}
		for s, isShort := range node {
			ruled[s]++
			if isShort {
				short[s]++
			}
		}
	}
	p.mu.Unlock()
	for s, n := range ruled {
		out <- prometheus.MustNewConstMetric(p.ruled, prometheus.GaugeValue, float64(n), s.pool, s.family.String())
		out <- prometheus.MustNewConstMetric(p.short, prometheus.GaugeValue, float64(short[s]), s.pool, s.family.String())
	}
}

// set records a share of a node. A share that no pool rules is dropped.
func (p *poolNodes) set(key state.ShareKey, pool string, short bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pool == "" {
		p.nodes.drop(key)
		return
	}
	p.nodes.set(key, poolNode{pool, short})
}

// forget drops some shares of a node.
func (p *poolNodes) forget(node string, matches func(state.ShareKey) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes.forget(node, matches)
}
