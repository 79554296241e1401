// Package ciliumpool maintains the CiliumPodIPPools that agents require.
package ciliumpool

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// unlistedAfter is when to reconcile again a CiliumPodIPPool that stays because nodes
// list CIDRs of it.
const unlistedAfter = 10 * time.Second

// Reconciler maintains a CiliumPodIPPool for each Cilium pool that PodIPPools
// serve: agents allocate no address of a pool without one (pkg/ipam/multipool.go,
// shouldSkipMasqForPool, v1.20.1).
type Reconciler struct {
	Live        client.Reader
	Client      client.Client
	Ledger      *state.Ledger
	Pools       *state.Pools
	CiliumPools *state.CiliumPools
	Events      *event.Recorder
	Counters    *common.Counters
	// Off stops all writes.
	Off bool
}

// Reconcile reconciles the CiliumPodIPPool of one name. It ignores one without the
// operator's label.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Ledger.WaitReady(ctx); err != nil {
		return reconcile.Result{}, err
	}
	current := r.CiliumPools.Get(req.Name)
	if r.Off || !r.CiliumPools.Known() || current != nil && (!current.Ours || current.Deleting) {
		return reconcile.Result{}, nil
	}
	serving := r.Pools.Serving(req.Name)
	pinned := r.pinned(req.Name)
	want := ciliumpool.Wanted(serving, slices.Concat(r.Ledger.ListedFor(req.Name), pinned), current)
	err := r.syncPool(ctx, req.Name, current, want, r.marks(pinned), len(serving)+len(pinned) > 0)
	r.reportWrites(req.Name, serving, err)
	if current != nil && len(serving)+len(pinned) == 0 && err == nil {
		return reconcile.Result{RequeueAfter: unlistedAfter}, nil
	}
	if apierrors.IsAlreadyExists(err) || current != nil && apierrors.IsNotFound(err) { // a create without its kind has lost to nobody
		return reconcile.Result{RequeueAfter: common.ConflictRetry}, nil
	}
	return common.AfterConflict(err)
}

// pinned returns the addresses that pins keep for the owner that a Cilium pool is for; none: it is for no
// single owner, or another name is in use for it. They count even if no PodIPPool has them: without the pool,
// agents would assign the pod another address.
func (r *Reconciler) pinned(name string) []netip.Prefix {
	owner := crd.OwnerOfPool(name)
	if owner == "" || r.CiliumPools.OfOwner(owner, r.Ledger) != name {
		return nil
	}
	return r.Ledger.Pins.Of(owner)
}

// marks returns the marks of the CiliumPodIPPool that a pool of pinned addresses has for its other pods;
// nil: there is none.
func (r *Reconciler) marks(pinned []netip.Prefix) *ciliumpool.Marks {
	for _, name := range r.Pools.Touching(pinned) {
		if pool := r.CiliumPools.Get(cmp.Or(r.Pools.Get(name).CiliumPool, crd.DefaultCiliumPool)); pool != nil {
			return &pool.Marks
		}
	}
	return nil
}

// reportWrites reports on the first pool that serves a Cilium pool, by name, that the API server
// refuses a write of the CiliumPodIPPool, and when it no longer does; err is the write's error.
// Where no pool serves it, there is no object to report on.
func (r *Reconciler) reportWrites(name string, serving []*crd.Pool, err error) {
	key := "ciliumpool/" + name
	if len(serving) == 0 {
		r.Events.ForgetResult(key)
		return
	}
	first := slices.MinFunc(serving, func(a, b *crd.Pool) int { return strings.Compare(a.Name, b.Name) })
	r.Events.ReportResult(key, err, func(*common.Refusal) runtime.Object {
		return &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: first.Name, UID: first.UID}}
	})
}

// syncPool writes the difference from the desired object.
func (r *Reconciler) syncPool(ctx context.Context, name string, current *ciliumpool.View, want [2]int, marks *ciliumpool.Marks, served bool) error {
	nothing := want == [2]int{}
	if current == nil && !nothing && served {
		log.FromContext(ctx).Info("making the CiliumPodIPPool that agents look for")
		return r.Counters.CountWrite("CiliumPodIPPool", name, "create", r.Client.Create(ctx, ciliumpool.New(name, want, ptr.Deref(marks, ciliumpool.Marks{}))))
	}
	if current == nil || nothing && served {
		return nil
	}
	if nothing {
		return r.drop(ctx, name, current)
	}
	patch, err := current.Patch(want, marks)
	if err != nil || patch == nil {
		return err
	}
	raw := client.RawPatch(types.MergePatchType, patch)
	return r.Counters.CountWrite("CiliumPodIPPool", name, "patch", r.Client.Patch(ctx, ciliumpool.Empty(name), raw))
}

// drop deletes a CiliumPodIPPool unless a PodIPPool or a pin, read live, is for it: deletion
// would lose manual edits, and the watch may lag.
func (r *Reconciler) drop(ctx context.Context, name string, current *ciliumpool.View) error {
	served, err := r.servedLive(ctx, name)
	if err != nil || served || len(r.Ledger.ListedFor(name)) > 0 {
		return err
	}
	log.FromContext(ctx).Info("deleting the CiliumPodIPPool, as no PodIPPool serves it and no node lists a CIDR of it")
	return r.Counters.CountWrite("CiliumPodIPPool", name, "delete", r.Client.Delete(ctx, ciliumpool.Empty(name),
		client.Preconditions{UID: &current.UID, ResourceVersion: &current.ResourceVersion}))
}

// servedLive reports whether a PodIPPool serves a Cilium pool, or a pin keeps an address for the owner
// that it is for.
func (r *Reconciler) servedLive(ctx context.Context, name string) (bool, error) {
	if owner := crd.OwnerOfPool(name); owner != "" {
		if r.CiliumPools.OfOwner(owner, r.Ledger) != name {
			return false, nil
		}
		pins := &v1alpha1.PodIPPinList{}
		if err := r.Live.List(ctx, pins); err != nil {
			return false, fmt.Errorf("listing pins: %w", err)
		}
		return slices.ContainsFunc(pins.Items, func(p v1alpha1.PodIPPin) bool {
			pin, err := crd.PinFrom(&p)
			return err == nil && pin.Owner == owner
		}), nil
	}
	pools := &v1alpha1.PodIPPoolList{}
	if err := r.Live.List(ctx, pools); err != nil {
		return false, fmt.Errorf("listing pools: %w", err)
	}
	return slices.ContainsFunc(pools.Items, func(p v1alpha1.PodIPPool) bool { return crd.CiliumPoolObjectName(&p) == name }), nil
}
