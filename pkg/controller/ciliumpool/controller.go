// Package ciliumpool maintains the CiliumPodIPPools that agents require.
package ciliumpool

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/metrics"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/retry"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
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
	Shared      *metrics.Shared
	// Off stops all writes.
	Off bool
}

// Reconcile reconciles the CiliumPodIPPool of one name. It ignores one without the
// operator's label.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Ledger.WaitReady(ctx); err != nil {
		return reconcile.Result{}, err
	}
	is := r.CiliumPools.Get(req.Name)
	if r.Off || !r.CiliumPools.Known() || is != nil && (!is.Ours || is.Deleting) {
		return reconcile.Result{}, nil
	}
	serving := r.Pools.Serving(req.Name)
	want := ciliumpool.Wanted(serving, r.Ledger.ListedFor(req.Name), is)
	result, err := r.keep(ctx, req.Name, is, want, len(serving) > 0)
	if is != nil && len(serving) == 0 && err == nil {
		result.RequeueAfter = retry.Sooner(result.RequeueAfter, unlistedAfter)
	}
	return result, err
}

// keep writes the difference from the desired object.
func (r *Reconciler) keep(ctx context.Context, name string, is *ciliumpool.View, want [2]int, served bool) (reconcile.Result, error) {
	nothing := want == [2]int{}
	switch {
	case is == nil && !nothing && served:
		log.FromContext(ctx).Info("making the CiliumPodIPPool that agents look for")
		return lostToAnother(r.Shared.Wrote("CiliumPodIPPool", "create", r.Client.Create(ctx, ciliumpool.New(name, want))))
	case is == nil || nothing && served:
		return reconcile.Result{}, nil
	case nothing:
		return r.drop(ctx, name, is)
	}
	patch, err := is.Patch(want)
	if err != nil {
		return reconcile.Result{}, err
	}
	if patch == nil {
		return reconcile.Result{}, nil
	}
	raw := client.RawPatch(types.MergePatchType, patch)
	return lostToAnother(r.Shared.Wrote("CiliumPodIPPool", "patch", r.Client.Patch(ctx, ciliumpool.Carrier(name), raw)))
}

// drop deletes a CiliumPodIPPool unless a PodIPPool, read live, serves it: deletion
// would lose manual edits, and the watch may lag.
func (r *Reconciler) drop(ctx context.Context, name string, is *ciliumpool.View) (reconcile.Result, error) {
	live := &v1alpha1.PodIPPoolList{}
	if err := r.Live.List(ctx, live); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing pools: %w", err)
	}
	served := slices.ContainsFunc(live.Items, func(p v1alpha1.PodIPPool) bool {
		return crd.CiliumPoolOf(&p) == name
	})
	if served || len(r.Ledger.ListedFor(name)) > 0 {
		return reconcile.Result{RequeueAfter: unlistedAfter}, nil
	}
	log.FromContext(ctx).Info("deleting the CiliumPodIPPool, as no PodIPPool serves it and no node lists a CIDR of it")
	return lostToAnother(r.Shared.Wrote("CiliumPodIPPool", "delete", r.Client.Delete(ctx, ciliumpool.Carrier(name),
		client.Preconditions{UID: &is.UID, ResourceVersion: &is.ResourceVersion})))
}

// lostToAnother requeues after a write conflict without reporting an error.
func lostToAnother(err error) (reconcile.Result, error) {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: retry.Conflict}, nil
	}
	return retry.AfterConflict(err)
}
