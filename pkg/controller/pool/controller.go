// Package pool maintains the status of pools.
package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pacing"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// servedEvery is the interval of reconciles of a pool without a free block and without an event.
const servedEvery = 10 * time.Minute

// Reconciler maintains the status of pools, and keeps a deleted pool until its
// blocks are gone.
type Reconciler struct {
	Cache    client.Reader
	Live     client.Reader
	Client   client.Client
	Ledger   *state.Ledger
	Pools    *state.Pools
	Events   *event.Recorder
	Metrics  *Metrics
	Counters *common.Counters
	Clock    clock.PassiveClock
	// ReadOnly: the operator is paused or runs in shadow, and changes no node.
	ReadOnly bool
	Pressure *state.Pressure
	Pacing   *pacing.Pacing
	// CiliumPools are the agents' views of the Cilium pools that PodIPPools serve.
	CiliumPools *state.CiliumPools
	// Cilium is how agents are configured.
	Cilium *ciliumconfig.Latest

	reworded sync.Map // the time of the last write of messages and used alone, by pool
}

// Reconcile reconciles the status and the finalizer of one pool.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Ledger.WaitReady(ctx); err != nil {
		return reconcile.Result{}, err
	}
	obj := &v1alpha1.PodIPPool{}
	if err := r.Cache.Get(ctx, req.NamespacedName, obj); err != nil {
		if apierrors.IsNotFound(err) {
			r.Metrics.Forget(req.Name)
			r.Counters.ForgetPool(req.Name)
			r.Events.ForgetResult(writesOf(req.Name))
			r.Pacing.ForgetPool(req.Name)
			r.Pressure.ForgetPool(req.Name)
			r.reworded.Delete(req.Name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	obj = obj.DeepCopy()
	pool := r.Pools.Get(obj.Name)
	invalid := r.Pools.Invalid(obj.Name)
	excluded := r.Ledger.Exclusions.ExcludedFrom(pool)
	counted := pool.WithSkipped(slices.Concat(exclude.CIDRs(excluded), r.Ledger.Pins.Away(pool)))
	usage := poolUsage{PoolUsage: state.UsageOf(counted, r.Ledger.PoolBlocks(obj.Name), r.Ledger.Free), excluded: excluded, readOnly: r.ReadOnly}
	usage.CoolingDown = slices.DeleteFunc(usage.CoolingDown, func(b crd.Block) bool { return !r.Ledger.ComesBack(pool, b.CIDR) })
	usage.setUsed(pool, r.Ledger.Used(obj.Name))
	state.Press(r.Pressure, counted, usage.Families)
	gone, finalizeErr := r.finalize(ctx, obj, usage.Held == 0)
	if apierrors.IsConflict(finalizeErr) || gone {
		r.reportWrites(writesOf(obj.Name), obj, finalizeErr)
		return common.AfterConflict(finalizeErr)
	}
	served, err := r.readServed(ctx, pool, usage.Families)
	if err != nil {
		return reconcile.Result{}, err
	}
	usage.served = served
	usage.Selected = served.selected
	wait, err := r.updateStatus(ctx, obj, pool, invalid, usage)
	err = errors.Join(finalizeErr, err)
	r.reportWrites(writesOf(obj.Name), obj, err)
	if err != nil {
		return common.AfterConflict(err)
	}
	requeue := common.Sooner(untilWindow(pool, r.Clock.Now()), wait)
	if usage.served.nodesRead {
		requeue = common.Sooner(requeue, servedEvery)
	}
	return reconcile.Result{RequeueAfter: requeue}, nil
}

// finalize adds the finalizer to a pool and removes it from a deleted one once its blocks are gone.
// It reports whether the pool is gone with it.
func (r *Reconciler) finalize(ctx context.Context, obj *v1alpha1.PodIPPool, empty bool) (bool, error) {
	finalized := slices.Contains(obj.Finalizers, v1alpha1.Finalizer)
	var patch client.Patch
	switch {
	case obj.DeletionTimestamp == nil && !finalized:
		patch = common.AddFinalizer(obj)
	case obj.DeletionTimestamp != nil && finalized && empty:
		blocks := &v1alpha1.PodIPBlockList{}
		if err := r.Live.List(ctx, blocks, client.MatchingFields{"spec.poolName": obj.Name}, client.Limit(1)); err != nil {
			return false, fmt.Errorf("listing blocks of pool %s: %w", obj.Name, err)
		}
		if len(blocks.Items) > 0 {
			return false, nil
		}
		patch = common.DropFinalizer(obj)
	default:
		return obj.DeletionTimestamp != nil && !finalized, nil
	}
	if err := r.Counters.CountWrite("PodIPPool", obj.Name, "finalizer", r.Client.Patch(ctx, obj, patch)); err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	return obj.DeletionTimestamp != nil, nil
}

// updateStatus writes the status of a pool if it has changed, or returns the time after which it may
// write messages and the number of addresses in use alone.
func (r *Reconciler) updateStatus(ctx context.Context, obj *v1alpha1.PodIPPool, pool *crd.Pool, invalid error, usage poolUsage) (time.Duration, error) {
	old := obj.Status.DeepCopy()
	usage.fill(&obj.Status)
	obj.Status.ObservedGeneration = obj.Generation
	obj.Status.Effective = nil
	if !unreadable(pool) {
		obj.Status.Effective = pool.Effective()
	}
	now := r.Clock.Now()
	setConditions(obj, pool, invalid, usage, now)
	setCondition(obj, v1alpha1.PoolWindow, windowCondition(pool, now), now)
	setCondition(obj, v1alpha1.PoolCoversCluster, excludedCondition(pool, usage.excluded, r.Ledger.Exclusions.SharedWith(pool), r.Ledger.HolderOf), now)
	setCondition(obj, v1alpha1.PoolMasqueraded, masqueradedCondition(pool, r.Cilium.Get()), now)
	setCondition(obj, v1alpha1.PoolFamiliesServed, r.familiesCondition(pool), now)
	setCondition(obj, v1alpha1.PoolCiliumPool, r.ciliumPoolCondition(pool), now)
	obj.Status.RoomForNodes = r.Metrics.ShowRoom(pool, usage.Families)
	ready := meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.PoolReady) || obj.DeletionTimestamp != nil
	r.Metrics.Show(obj.Name, pool, ready, &usage.PoolUsage)
	if equality.Semantic.DeepEqual(old, &obj.Status) {
		return 0, nil
	}
	alone, much := compareWords(old, &obj.Status)
	if alone && !much {
		return 0, nil
	}
	if wait := r.untilWords(obj.Name, now); alone && wait > 0 {
		return wait, nil
	}
	if err := r.Counters.CountWrite("PodIPPool", obj.Name, "status", r.Client.Status().Update(ctx, obj)); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if alone {
		r.reworded.Store(obj.Name, now)
	}
	r.emitEvents(obj, old)
	return 0, nil
}

// eventsOfPoolConditions are sent when a condition turns to a status.
var eventsOfPoolConditions = []struct {
	condition string
	to        metav1.ConditionStatus
	event     string
}{
	{v1alpha1.PoolOverlapping, metav1.ConditionTrue, event.ReasonPoolOverlapping},
	{v1alpha1.PoolReservedHeld, metav1.ConditionTrue, event.ReasonReservedBlocksHeld},
	{v1alpha1.PoolCoversCluster, metav1.ConditionTrue, event.ReasonPoolCoversClusterAddresses},
	{v1alpha1.PoolMasqueraded, metav1.ConditionTrue, event.ReasonPoolMasqueraded},
	{v1alpha1.PoolFamiliesServed, metav1.ConditionFalse, event.ReasonFamilyNotRun},
}

// emitEvents sends an event for each condition that changed.
func (r *Reconciler) emitEvents(obj *v1alpha1.PodIPPool, old *v1alpha1.PodIPPoolStatus) {
	now := obj.Status.Conditions
	exhausted := meta.IsStatusConditionTrue(now, v1alpha1.PoolExhausted)
	wasExhausted := meta.IsStatusConditionTrue(old.Conditions, v1alpha1.PoolExhausted)
	if exhausted && !wasExhausted {
		r.Events.Send(obj, event.ReasonPoolExhausted, event.Reconcile, messageOf(now, v1alpha1.PoolExhausted))
	} else if wasExhausted && reasonOf(now, v1alpha1.PoolExhausted) == ReasonFreeBlocks {
		r.Events.Send(obj, event.ReasonPoolRecovered, event.Reconcile, messageOf(now, v1alpha1.PoolExhausted))
	}
	for _, turned := range eventsOfPoolConditions {
		if meta.IsStatusConditionPresentAndEqual(now, turned.condition, turned.to) && !meta.IsStatusConditionPresentAndEqual(old.Conditions, turned.condition, turned.to) {
			r.Events.Send(obj, turned.event, event.Reconcile, messageOf(now, turned.condition))
		}
	}
	if reason := reasonOf(now, v1alpha1.PoolCiliumPool); reason != reasonOf(old.Conditions, v1alpha1.PoolCiliumPool) && isUnfit(reason) {
		r.Events.Send(obj, event.ReasonCiliumPodIPPoolUnfit, event.Reconcile, messageOf(now, v1alpha1.PoolCiliumPool))
	}
	reason := reasonOf(now, v1alpha1.PoolReady)
	if turned, ok := eventsOfReady[reason]; ok && reason != reasonOf(old.Conditions, v1alpha1.PoolReady) {
		note := messageOf(now, v1alpha1.PoolReady)
		if reason == ReasonNodesShort && exhausted {
			note += ". " + messageOf(now, v1alpha1.PoolExhausted)
		}
		r.Events.Send(obj, turned, event.Reconcile, note)
	}
}

// eventsOfReady are sent when the condition Ready turns to a reason.
var eventsOfReady = map[string]string{
	ReasonInvalid: event.ReasonPoolInvalid, ReasonDeleting: event.ReasonPoolWaitsForBlocks, ReasonEmpty: event.ReasonPoolEmpty,
	ReasonNodesShort: event.ReasonPodAddressShortage,
}

func conditionIn(conditions []metav1.Condition, kind string) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(conditions, kind), metav1.Condition{})
}

func messageOf(conditions []metav1.Condition, kind string) string {
	return conditionIn(conditions, kind).Message
}

func reasonOf(conditions []metav1.Condition, kind string) string {
	return conditionIn(conditions, kind).Reason
}

// nodesLine names the first few of n nodes, for messages.
func nodesLine(nodes []string, n int) string {
	named := nodes[:min(len(nodes), state.NamedNodes)]
	line := strings.Join(named, ", ")
	if n > len(named) && len(named) > 0 {
		line += fmt.Sprintf(" and %d more", n-len(named))
	}
	return line
}

// writesOf is the key of reports about the writes of a pool.
func writesOf(pool string) string { return "pool/" + pool }

// reportWrites reports on a pool that the API server refuses a write, and when it no longer does;
// err is the write's error.
func (r *Reconciler) reportWrites(key string, pool *v1alpha1.PodIPPool, err error) {
	r.Events.ReportResult(key, err, func(*common.Refusal) runtime.Object { return pool })
}
