// Package block handles manual changes to blocks.
package block

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Reconciler handles manual changes to blocks: it adds the finalizer to a block that a person
// created, and reports overlaps.
type Reconciler struct {
	Cache    client.Reader
	Client   client.Client
	Ledger   *state.Ledger
	Events   *event.Recorder
	Counters *common.Counters
	Clock    clock.PassiveClock
	// WholeBlocks: agents are assigned whole blocks.
	WholeBlocks bool
	// ReadOnly stops all writes.
	ReadOnly bool
}

// Reconcile brings one block's finalizer and its condition Conflict up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Ledger.WaitReady(ctx); err != nil {
		return reconcile.Result{}, err
	}
	obj := &v1alpha1.PodIPBlock{}
	key := "block/" + req.Name
	if err := r.Cache.Get(ctx, req.NamespacedName, obj); err != nil {
		r.Events.ForgetResult(key)
		r.Events.Last.Forget(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	err := r.update(ctx, obj)
	r.Events.ReportResult(key, err, func(*common.Refusal) runtime.Object { return obj })
	return common.AfterConflict(err)
}

func (r *Reconciler) update(ctx context.Context, obj *v1alpha1.PodIPBlock) error {
	b, ok := r.read(obj)
	if !ok || b.Deleting || r.ReadOnly {
		return nil
	}
	if ipalloc.TooLarge(b.CIDR, r.WholeBlocks) {
		r.reportTooLarge(obj, b.CIDR)
	}
	var failed error
	if !b.Finalized && b.Phase != ipalloc.CoolingDown {
		patched := obj.DeepCopy()
		failed = r.Counters.CountWrite("PodIPBlock", obj.Name, "finalizer", client.IgnoreNotFound(r.Client.Patch(ctx, patched, common.AddFinalizer(obj))))
		if failed == nil {
			return nil // the watch shows it
		}
	}
	return errors.Join(failed, r.conflict(ctx, obj, b))
}

// read skips blocks that cannot be parsed; the feed has logged them.
func (r *Reconciler) read(obj *v1alpha1.PodIPBlock) (crd.Block, bool) {
	b, err := crd.BlockFrom(obj)
	return b, err == nil
}

func (r *Reconciler) conflict(ctx context.Context, obj *v1alpha1.PodIPBlock, b crd.Block) error {
	conflicts := r.Ledger.Overlaps(b.CIDR)
	if (len(conflicts) > 0) == b.Conflict {
		return nil
	}
	obj = obj.DeepCopy()
	if len(conflicts) == 0 {
		meta.RemoveStatusCondition(&obj.Status.Conditions, v1alpha1.BlockConflict)
	} else {
		message := fmt.Sprintf("overlaps block %s of %s: neither publishes another address until one of them is deleted", conflicts[0].CIDR, conflicts[0].Owner)
		crd.SetBlockCondition(obj, v1alpha1.BlockConflict, metav1.ConditionTrue, v1alpha1.ConflictOverlap, message, r.Clock.Now())
		r.Events.Send(obj, event.ReasonBlockConflict, event.Reconcile, message)
	}
	return client.IgnoreNotFound(r.Counters.CountWrite("PodIPBlock", obj.Name, "conflict", r.Client.Status().Update(ctx, obj)))
}

func (r *Reconciler) reportTooLarge(obj *v1alpha1.PodIPBlock, cidr netip.Prefix) {
	f := ipalloc.FamilyOf(cidr.Addr())
	note := fmt.Sprintf("block %s is larger than the largest of this mode (%s); none of its addresses is published. Delete it, and let the node claim smaller ones", cidr, f.SizeText(f.Bits()-ipalloc.MaxHostBits(f, r.WholeBlocks)))
	r.Events.SendOnce(obj, "size", event.ReasonBlockTooLarge, note)
}
