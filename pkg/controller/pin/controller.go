// Package pin maintains the status of pins.
package pin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Reconciler maintains the status of pins. The node of a pin claims its block: see
// state.Ledger.Claim.
type Reconciler struct {
	Cache    client.Reader
	Client   client.Client
	Ledger   *state.Ledger
	Pools    *state.Pools
	Events   *event.Recorder
	Counters *common.Counters
	Clock    clock.PassiveClock
	// ReadOnly stops all writes.
	ReadOnly bool
}

// Reconcile brings the condition Ready of one pin up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Ledger.WaitReady(ctx); err != nil {
		return reconcile.Result{}, err
	}
	obj := &v1alpha1.PodIPPin{}
	key := "pin/" + req.Name
	if err := r.Cache.Get(ctx, req.NamespacedName, obj); err != nil {
		r.Events.ForgetResult(key)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	pin, err := crd.PinFrom(obj)
	if err != nil || r.ReadOnly {
		return reconcile.Result{}, nil //nolint:nilerr // the feed has logged it
	}
	node := &corev1.Node{}
	getErr := r.Cache.Get(ctx, types.NamespacedName{Name: pin.Node}, node)
	if client.IgnoreNotFound(getErr) != nil {
		return reconcile.Result{}, getErr
	}
	if getErr != nil {
		node = nil
	}
	ready := r.readyCondition(pin, node)
	obj = obj.DeepCopy()
	ready.ObservedGeneration = obj.Generation
	ready.LastTransitionTime = metav1.NewTime(r.Clock.Now())
	if meta.SetStatusCondition(&obj.Status.Conditions, ready) {
		err = client.IgnoreNotFound(r.Counters.CountWrite("PodIPPin", obj.Name, "status", r.Client.Status().Update(ctx, obj)))
	}
	r.Events.ReportResult(key, err, func(*common.Refusal) runtime.Object { return obj })
	return common.UntilShown(err)
}

// readyCondition returns the condition Ready of a pin. node is nil if there is no such Node.
func (r *Reconciler) readyCondition(pin crd.Pin, node *corev1.Node) metav1.Condition {
	notReady := func(reason, format string, args ...any) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.PinReady, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	block, ok := r.Ledger.Block(pin.CIDR)
	if ok && isFor(block, pin) {
		if block.Phase != ipalloc.InService {
			return notReady(v1alpha1.PinDraining, "node %s returns the block: kubectl describe podipblock %s", block.Node, block.Name)
		}
		return metav1.Condition{Type: v1alpha1.PinReady, Status: metav1.ConditionTrue, Reason: v1alpha1.PinHeld, Message: "node " + block.Node + " holds the block"}
	}
	pool := r.Pools.Having(pin.CIDR)
	if pool == nil {
		return notReady(v1alpha1.PinNotInPool, "no valid PodIPPool has %s in its cidrs: add the CIDR to one, or delete this pin and name a block of a pool", pin.CIDR)
	}
	if pin.Owner != "" && !pool.ManyCiliumPools() {
		return notReady(v1alpha1.PinNotAllocated, "pins for pods need multi-pool or delegated-plugin mode: in this mode agents have no pool for a single owner")
	}
	if !pool.OnGrid(pin.CIDR) {
		return notReady(v1alpha1.PinNotABlock, "%s", wrongSize(pool, pin))
	}
	if blocks := r.Ledger.HeldIn(pin.CIDR); len(blocks) > 0 {
		return notReady(v1alpha1.PinHeldByNode, "node %s holds it; to move it: kubectl cilium-pool drain %s", blocks[0].Owner.Node, crd.BlockName(blocks[0].CIDR))
	}
	excluded := r.Ledger.Exclusions.Excluded(pin.CIDR)
	named := r.Ledger.NamedElsewhere(pin.Node, pin.CIDR)
	switch {
	case len(named) > 0:
		return notReady(v1alpha1.PinHeldByNode, "the CiliumNode of another node names %s", named[0])
	case len(excluded) > 0:
		return notReady(v1alpha1.PinNotAllocated, "no node gets it: it covers %s", exclude.Words(excluded, nil))
	case !pool.AssignsNow(pin.CIDR):
		return notReady(v1alpha1.PinNotAllocated, "PodIPPool %s gives it to no node: %s", pool.Name, whyNot(pool, pin))
	case pin.Owner != "":
		return notReady(v1alpha1.PinNotClaimed, "no node holds it for %s: none is bound, or the node has not claimed the address yet", crd.OwnerWords(pin.Owner))
	case node == nil:
		return notReady(v1alpha1.PinWaitsForNode, "there is no Node %s yet: the block is kept for it", pin.Node)
	case !pool.Selector.Matches(labels.Set(node.Labels)):
		return notReady(v1alpha1.PinNotSelected, "spec.nodeSelector of PodIPPool %s does not match the labels of Node %s", pool.Name, pin.Node)
	}
	return notReady(v1alpha1.PinNotClaimed, "node %s has not claimed it yet", pin.Node)
}

// isFor reports whether a block is on the node of a pin, or was claimed for its owner.
func isFor(b crd.Block, pin crd.Pin) bool {
	if pin.Owner != "" {
		return crd.OwnerOfPool(b.CiliumPool) == pin.Owner
	}
	return b.Node == pin.Node
}

// wrongSize says what to do about a pin that is no block of its pool.
func wrongSize(pool *crd.Pool, pin crd.Pin) string {
	family := ipalloc.FamilyOf(pin.CIDR.Addr())
	ranges, _ := pool.Ranges(family)
	message := fmt.Sprintf("blocks of PodIPPool %s have blockSize %d (%s): ", pool.Name, ranges.Bits, family.SizeText(ranges.Bits))
	fix := "pin each of them by itself"
	if pin.Owner != "" {
		fix = "delete this pin, as pods keep addresses only of a pool with blocks of single ones"
	}
	return message + fix
}

// whyNot returns the reason for a pool to assign a block to no node.
func whyNot(pool *crd.Pool, pin crd.Pin) string {
	if pool.Deleting {
		return "it is being deleted"
	}
	if pool.Paused {
		return "it is paused (spec.paused)"
	}
	if pool.Skips(pin.CIDR) {
		return "addresses of the block are reserved (spec.reserved)"
	}
	r, _ := pool.RangeOf(pin.CIDR)
	return fmt.Sprintf("%s has allocationPolicy %s", r.CIDR, r.Policy)
}
