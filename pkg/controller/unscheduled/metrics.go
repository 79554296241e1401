package unscheduled

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/metrics"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
)

// Metrics are the metrics of unscheduled pods.
type Metrics struct {
	pods *prometheus.GaugeVec
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		pods: metrics.Gauge("unscheduled_pods", "Pods that the scheduler finds no addresses for, by what they wait for: scheduler, growth, block, node.", "for"),
	}
	return m, metrics.Register(r, m.pods)
}

// assigned records what unscheduled pods wait for.
func (m *Metrics) assigned(a *scheduling.Assignment) {
	for what, n := range map[string]int{
		"scheduler": a.Offered, "growth": a.Growing, "block": a.Short, "node": a.Pods - a.Offered - a.Growing - a.Short,
	} {
		m.pods.WithLabelValues(what).Set(float64(n))
	}
}
