package controller

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/node"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/unscheduled"
)

// operatorMetrics are the metrics of the operator itself.
type operatorMetrics struct {
	build   *prometheus.GaugeVec
	schemas *prometheus.GaugeVec
	missing prometheus.Gauge
	// unread is 1 while a kind cannot be listed or watched.
	unread *prometheus.GaugeVec
	// noOffers is 1 while Nodes should offer addresses and do not.
	noOffers prometheus.Gauge
	// otherMode is the number of nodes with agents that start next in another mode.
	otherMode prometheus.Gauge
	// recovering is 1 while changes are held back after a restore of etcd.
	recovering prometheus.Gauge
}

func newOperatorMetrics(r prometheus.Registerer) (*operatorMetrics, error) {
	m := &operatorMetrics{
		build:     common.Gauge("build_info", "1; the labels identify the build.", "version", "commit", "goversion"),
		schemas:   common.Gauge("crd_schema_differs", "1 while the API server serves a CRD with another schema than the operator was built with, or no more, or the operator may not read it; else 0.", "crd"),
		missing:   common.Number("prerequisites_missing", "CRDs that the operator waits for before it assigns any address."),
		unread:    common.Gauge("kinds_unread", "1 while the operator has not read the objects of a kind, or fails to list or watch them; else 0.", "kind"),
		noOffers:  common.Number("scheduling_unavailable", "1 if --scheduling-families is without effect, as the API server serves no MutatingAdmissionPolicy; else 0."),
		otherMode: common.Number("nodes_in_other_mode", "Nodes with blocks whose agents are configured for another IPAM mode than the operator's, and start in it next."),

		recovering: common.Number("recovering", "1 while the operator changes nothing, as etcd was or may have been restored and agents have yet to report; else 0."),
	}
	return m, common.Register(r, m.build, m.schemas, m.missing, m.unread, m.noOffers, m.otherMode, m.recovering)
}

// allMetrics are the metrics of all parts of the operator.
type allMetrics struct {
	own      *operatorMetrics
	counters *common.Counters
	node     *node.Metrics
	pool     *pool.Metrics

	unscheduled *unscheduled.Metrics
}

func newAllMetrics(r prometheus.Registerer) (metrics allMetrics, err error) {
	var errs [5]error
	metrics.own, errs[0] = newOperatorMetrics(r)
	metrics.counters, errs[1] = common.NewCounters(r)
	metrics.node, errs[2] = node.NewMetrics(r)
	metrics.pool, errs[3] = pool.NewMetrics(r)
	metrics.unscheduled, errs[4] = unscheduled.NewMetrics(r)
	return metrics, errors.Join(errs[:]...)
}
