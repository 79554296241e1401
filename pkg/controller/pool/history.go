package pool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/retry"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// historyRetry is when to retry reading or writing a history after an API error.
// Neither nodes nor the pool's status wait for it.
const historyRetry = retry.Longest

// knownHistory is the history of a pool as this process knows it.
type knownHistory struct {
	// noted is the history with everything recorded so far, and stored says that the
	// API server has it. If noted is nil, the history must be read first.
	noted  *v1alpha1.PodIPPoolHistory
	stored bool
	// failing: the last call failed, which is logged once.
	failing bool
}

// histories are those of the pools, by name. Only the worker that reconciles a pool uses its
// history.
type histories struct {
	mu     sync.Mutex
	byPool map[string]*knownHistory
}

func (h *histories) of(pool string) *knownHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.byPool[pool]
	if known == nil {
		known = &knownHistory{}
		if h.byPool == nil {
			h.byPool = map[string]*knownHistory{}
		}
		h.byPool[pool] = known
	}
	return known
}

func (h *histories) forget(pool string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byPool, pool)
}

// noteHistory updates the PodIPPoolHistory of a pool before the pool's status is
// written. A new leader that takes over between the two writes finds the same blocks
// cooling down and the same number held, and records nothing twice. The records derive
// from blocks alone, and the history is written only when it changes: at most once per
// reconcile of the pool.
//
// It returns the current history, nil if it cannot be read, and when to retry a
// failure; 0: nothing failed.
func (r *Reconciler) noteHistory(ctx context.Context, pool *v1alpha1.PodIPPool, u poolUsage, now time.Time) (*v1alpha1.PodIPPoolHistory, time.Duration) {
	known := r.histories.of(pool.Name)
	if known.noted == nil || !crd.IsHistoryOf(known.noted, pool) {
		read, err := r.readHistory(ctx, pool)
		if err != nil {
			known.noted = nil
			return nil, known.failed(ctx, err)
		}
		known.noted, known.stored = read, read.ResourceVersion != ""
	}
	next := known.noted.DeepCopy()
	noteReturned(next, u.coolingDown, now)
	noteHeld(next, u.families, now)
	if !equality.Semantic.DeepEqual(known.noted, next) {
		known.noted, known.stored = next, false
	}
	if known.stored || next.ResourceVersion == "" && pool.DeletionTimestamp != nil {
		return next, 0 // the history of a deleted pool may have been garbage collected
	}
	return next, r.writeHistory(ctx, pool, known)
}

// readHistory reads a history live. It replaces one of an earlier pool of the same
// name.
func (r *Reconciler) readHistory(ctx context.Context, pool *v1alpha1.PodIPPool) (*v1alpha1.PodIPPoolHistory, error) {
	read, fresh := &v1alpha1.PodIPPoolHistory{}, crd.NewHistory(pool)
	err := r.Live.Get(ctx, types.NamespacedName{Name: pool.Name}, read)
	switch {
	case apierrors.IsNotFound(err):
		return fresh, nil
	case err != nil:
		return nil, fmt.Errorf("reading PodIPPoolHistory %s: %w", pool.Name, err)
	case !crd.IsHistoryOf(read, pool):
		fresh.UID, fresh.ResourceVersion = read.UID, read.ResourceVersion
		return fresh, nil
	}
	return read, nil
}

// writeHistory creates a history, or updates the version it is based on. One that was
// changed or deleted meanwhile is read again, and the blocks cooling down or held are
// recorded in that. It returns when to retry; 0: it is written.
func (r *Reconciler) writeHistory(ctx context.Context, pool *v1alpha1.PodIPPool, known *knownHistory) time.Duration {
	written, create := known.noted.DeepCopy(), known.noted.ResourceVersion == ""
	var err error
	if create {
		err = r.Shared.Wrote("PodIPPoolHistory", written.Name, "create", r.Client.Create(ctx, written))
	} else {
		err = r.Shared.Wrote("PodIPPoolHistory", written.Name, "update", r.Client.Update(ctx, written))
	}
	r.reportWrites(historyWritesOf(pool.Name), pool, err)
	switch {
	case err == nil:
		known.noted, known.stored, known.failing = written, true, false
		return 0
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && !create:
		known.noted = nil
		return retry.Conflict
	}
	return known.failed(ctx, fmt.Errorf("writing PodIPPoolHistory %s: %w", written.Name, err))
}

// failed returns when to retry after err. It logs the first of consecutive errors.
func (k *knownHistory) failed(ctx context.Context, err error) time.Duration {
	if !k.failing && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "the history of the pool is not kept up, which affects neither nodes nor the pool's status. "+
			"Install the chart's CRDs, and let the operator's ClusterRole get, create and update podippoolhistories.cilium-pool.io",
			"retryAfter", historyRetry)
	}
	k.failing = true
	return historyRetry
}

// HeldBlocks returns the samples of a family in a history; a nil history has none.
func HeldBlocks(h *v1alpha1.PodIPPoolHistory, f ipalloc.Family) []v1alpha1.HeldBlocks {
	if h == nil {
		return nil
	}
	return familyHistory(h, f).HeldBlocks
}

func familyHistory(h *v1alpha1.PodIPPoolHistory, f ipalloc.Family) *v1alpha1.FamilyHistory {
	if f == ipalloc.IPv6 {
		return &h.IPv6
	}
	return &h.IPv4
}
