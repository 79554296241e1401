package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// recoveryLookEvery is the interval of checks whether a recovery may end, and recoveryReminder of events about one
// that goes on.
const (
	recoveryLookEvery = time.Second
	recoveryReminder  = 10 * time.Minute
)

// recoveryCheck reports a recovery after a restore of etcd, and ends it once agents have reported.
type recoveryCheck struct {
	cluster   *state.Cluster
	events    *event.Recorder
	metrics   *operatorMetrics
	namespace string // Cilium's
	// reported is when the last event was sent about the recovery; zero: there is none.
	reported time.Time
}

// Start checks until ctx ends. It is a manager's Runnable, of the leader alone.
func (c *recoveryCheck) Start(ctx context.Context) error {
	if c.cluster.Ledger.WaitReady(ctx) == nil { // otherwise a shutdown, which is not a failure
		wait.UntilWithContext(ctx, func(ctx context.Context) { c.look(ctx, time.Now()) }, recoveryLookEvery)
	}
	return nil
}

func (c *recoveryCheck) look(ctx context.Context, now time.Time) {
	recovery := c.cluster.Recovery
	logger := log.FromContext(ctx).WithName("recovery")
	var waiting []string
	if recovery.Active() { // else no look through all nodes each second
		waiting = c.cluster.AwaitsReport(now)
		if recovery.MayEnd(len(waiting), c.cluster.Defaults.NodeGoneCooldown, now) {
			recovery.End()
		}
	}
	c.metrics.recovering.Set(common.OneIf(recovery.Active()))
	if !recovery.Active() {
		if !c.reported.IsZero() {
			c.reported = time.Time{}
			logger.Info("nodes and blocks may change again")
		}
		return
	}
	if now.Sub(c.reported) >= recoveryReminder {
		c.reported = now
		note := fmt.Sprintf("%s: until then no node and no block changes. Agents that have yet to report: %d %s. See docs/operations.md, restore of a backup",
			c.cluster.PausedBecause(nil, nil), len(waiting), suggest.First(5, waiting))
		logger.Info(note)
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: ciliumconfig.Name}}
		c.events.Send(obj, event.ReasonEtcdRestored, event.Reconcile, note)
	}
}
