// Package unscheduled decides which nodes should have room for pods that the scheduler
// finds no addresses for, and which return blocks for these and for nodes without any. The
// node controller then lets nodes grow and shrink.
package unscheduled

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
)

// Reconciler assigns unscheduled pods to nodes. It does not write.
type Reconciler struct {
	Cluster scheduling.Offering

	// Cache reads Nodes from the informers.
	Cache client.Reader
	// QueueNodes has nodes reconciled.
	QueueNodes func(names []string)
	Metrics    *Metrics
	Clock      clock.PassiveClock
}

// Reconcile assigns all pods anew, for any request, and queues the nodes with a changed number of
// addresses they should have room for, or with changed blocks they should return.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if err := r.Cluster.State.Ledger.WaitReady(ctx); err != nil {
		return reconcile.Result{}, err
	}
	nodes := &corev1.NodeList{}
	if err := r.Cache.List(ctx, nodes); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing Nodes: %w", err)
	}
	now := r.Clock.Now()
	a := r.Cluster.Assign(nodes.Items, now)
	r.Metrics.assigned(&a)
	r.Cluster.Unscheduled.SetScarce(a.Scarce)
	if changed := r.Cluster.Unscheduled.SetNeeds(a.Needs); len(changed) > 0 {
		log.FromContext(ctx).V(1).Info("pods wait for addresses, or nodes for their first block", "pods", a.Pods,
			"offered", a.Offered, "growing", a.Growing, "short", a.Short, "withoutBlock", len(a.FirstBlocks), "nodes", changed)
		r.QueueNodes(changed)
	}
	if a.RequeueAt.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(a.RequeueAt.Sub(now), 1)}, nil
}

// Metrics are the metrics of unscheduled pods.
type Metrics struct {
	pods *prometheus.GaugeVec
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		pods: common.Gauge("unscheduled_pods", "Pods that the scheduler finds no addresses for, by what they wait for: scheduler, growth, block, node.", "for"),
	}
	return m, common.Register(r, m.pods)
}

// assigned records the waits of unscheduled pods.
func (m *Metrics) assigned(a *scheduling.Assignment) {
	for kind, n := range map[string]int{
		"scheduler": a.Offered, "growth": a.Growing, "block": a.Short, "node": a.Pods - a.Offered - a.Growing - a.Short,
	} {
		m.pods.WithLabelValues(kind).Set(float64(n))
	}
}
