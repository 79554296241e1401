package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// errRestored ends a process that ran while etcd was restored: its watches would wait for versions that etcd has
// yet to reach, and its memory is of objects that are gone.
var errRestored = errors.New("etcd was restored from a snapshot, as the Lease or a list is older than before: " +
	"ending, so that the next process reads everything anew. It changes nothing until agents have reported (docs/operations.md, restore of a backup)")

const (
	// leasesMissed is a number of Lease durations. A new process that finds an unreleased Lease older
	// than that assumes a restore of etcd.
	leasesMissed = 4
	// bumped is a number of versions that etcd cannot write between two reads of the Lease: etcdutl's
	// --bump-revision skips a thousand million.
	bumped = 1_000_000
)

// leaseHistory recognizes a restore of etcd by the Lease, the one object that each process reads or writes every few
// seconds, and lists tell it of one where Leases have an etcd of their own. Later processes read its annotation
// RestoredAnnotation. It is not safe for concurrent use, except listsWentBack; an elector makes one call at a time.
type leaseHistory struct {
	recovery *state.Recovery // nil: in shadow and observe mode, where the Lease is not annotated
	// gap is the least age of an unreleased Lease that makes a new process assume a restore.
	gap time.Duration
	// end ends the process.
	end func(error)

	// last is the Lease as read or written last.
	last *coordinationv1.Lease
	// leads: this process holds the Lease. ended: it has called end.
	leads, ended bool
	// suspect: etcd may have been restored before this process read the Lease.
	suspect bool
	// lists: a list was older than the one before.
	lists atomic.Bool
}

// listsWentBack records that a list was older than before: the next read or write of the Lease ends the process.
func (h *leaseHistory) listsWentBack() {
	if h.recovery != nil {
		h.recovery.Begin(true, time.Now())
	}
	h.lists.Store(true)
}

// ends reports whether the process has to end, as lists went back.
func (h *leaseHistory) ends() bool { return h.lists.Load() && !h.ended }

// read compares a Lease with the one before. If etcd was restored in between, it annotates the Lease and ends
// the process.
func (h *leaseHistory) read(ctx context.Context, leases coordinationv1client.LeaseInterface, lease *coordinationv1.Lease) error {
	if h.ended {
		return nil
	}
	previous := h.last
	if h.ends() || previous != nil && wentBack(previous, lease) {
		return h.finish(ctx, leases, lease)
	}
	h.last = lease.DeepCopy()
	if h.recovery == nil {
		return nil
	}
	if previous == nil {
		h.suspect = h.lapsed(lease)
	} else if previous.ResourceVersion != lease.ResourceVersion && !h.lapsed(lease) { // another process leads
		h.suspect = false
	}
	if h.leads && lease.Annotations[v1alpha1.RestoredAnnotation] != previous.Annotations[v1alpha1.RestoredAnnotation] { // by a person
		h.follow(lease)
	}
	return nil
}

// finish annotates the Lease, so that the next process holds changes back, and ends this process.
func (h *leaseHistory) finish(ctx context.Context, leases coordinationv1client.LeaseInterface, lease *coordinationv1.Lease) error {
	if h.recovery != nil {
		marked := lease.DeepCopy()
		metav1.SetMetaDataAnnotation(&marked.ObjectMeta, v1alpha1.RestoredAnnotation, "true")
		if _, err := leases.Update(ctx, marked, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("marking the Lease, as etcd was restored: %w", err) // the next read tries again
		}
		h.recovery.Begin(true, time.Now())
	}
	h.ended = true
	h.end(errRestored)
	return errRestored
}

// lapsed reports whether the first Lease that this process reads may be of a restored etcd: its holder neither
// renewed it for long nor released it.
func (h *leaseHistory) lapsed(first *coordinationv1.Lease) bool {
	if ptr.Deref(first.Spec.HolderIdentity, "") == "" || first.Spec.RenewTime == nil {
		return false
	}
	return time.Since(first.Spec.RenewTime.Time).Abs() > h.gap
}

// acquire begins a recovery if the Lease that this process is about to acquire asks for one, or may be older than
// blocks that it does not know.
func (h *leaseHistory) acquire(lease *coordinationv1.Lease) {
	if h.recovery == nil || h.ended || h.leads || ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
		return
	}
	h.follow(lease)
	if h.suspect {
		h.recovery.Begin(false, time.Now())
	}
}

// follow begins or ends a recovery as the Lease's annotation says.
func (h *leaseHistory) follow(lease *coordinationv1.Lease) {
	value, ok := lease.Annotations[v1alpha1.RestoredAnnotation]
	if !ok {
		h.recovery.End()
		return
	}
	h.recovery.Begin(value != v1alpha1.RestoredPerhaps, time.Now())
}

// annotate writes into a Lease that this process holds whether a recovery is under way.
func (h *leaseHistory) annotate(lease *coordinationv1.Lease) {
	if h.recovery == nil {
		return
	}
	_, ok := lease.Annotations[v1alpha1.RestoredAnnotation]
	active := h.recovery.Active()
	if active && !ok {
		lease.Annotations[v1alpha1.RestoredAnnotation] = v1alpha1.RestoredPerhaps
	}
	if !active && h.leads {
		delete(lease.Annotations, v1alpha1.RestoredAnnotation)
	}
}

// wrote records a Lease that this process wrote: it holds or has released it.
func (h *leaseHistory) wrote(lease *coordinationv1.Lease) {
	h.last = lease.DeepCopy()
	h.leads = ptr.Deref(lease.Spec.HolderIdentity, "") != ""
}

// wentBack reports whether a Lease is of an earlier time than the one before: its version is smaller, or the restore
// has raised all versions and its renewal is older.
func wentBack(previous, now *coordinationv1.Lease) bool {
	oldVersion, err := strconv.ParseUint(previous.ResourceVersion, 10, 64)
	if err != nil {
		return false
	}
	version, err := strconv.ParseUint(now.ResourceVersion, 10, 64)
	if err != nil || version < oldVersion {
		return err == nil
	}
	return version-oldVersion >= bumped && now.Spec.RenewTime.Before(previous.Spec.RenewTime)
}
