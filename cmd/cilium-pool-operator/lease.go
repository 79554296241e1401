package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// leaseLock returns the lock that controller-runtime would create, except that the holder
// also writes its settings to the Lease. It does so in the write that acquires or renews
// the Lease, so that the settings cost no extra write and only the leader can write them.
func (o *options) leaseLock(config *rest.Config) (*resourcelock.LeaseLock, error) {
	settings, err := o.settings.Publish()
	if err != nil {
		return nil, err
	}
	// NewResourceLock sets a timeout and a user agent in its config, which must not apply
	// to watches.
	made, err := leaderelection.NewResourceLock(rest.CopyConfig(config), noRecorders{}, leaderelection.Options{
		LeaderElection: true, LeaderElectionID: o.leaseName, LeaderElectionNamespace: o.leaderNamespace(),
		RenewDeadline: renewDeadline(o.leaseDuration), LeaderLabels: map[string]string{v1alpha1.ModeLabel: o.mode},
	})
	if err != nil {
		return nil, err
	}
	lock, ok := made.(*resourcelock.LeaseLock)
	if !ok {
		return nil, fmt.Errorf("leader election by %T instead of a Lease", made)
	}
	lock.Client = annotating{lock.Client, map[string]string{v1alpha1.SettingsAnnotation: settings}}
	return lock, nil
}

// noRecorders is used because the lock is created before the manager, which has the
// recorders.
type noRecorders struct{ recorder.Provider }

func (noRecorders) GetEventRecorderFor(string) record.EventRecorder { return nil }

// annotating adds annotations to every Lease it writes.
type annotating struct {
	coordinationv1client.LeasesGetter
	annotations map[string]string
}

func (a annotating) Leases(namespace string) coordinationv1client.LeaseInterface {
	return annotatingLeases{a.LeasesGetter.Leases(namespace), a.annotations}
}

type annotatingLeases struct {
	coordinationv1client.LeaseInterface
	annotations map[string]string
}

func (a annotatingLeases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return a.LeaseInterface.Create(ctx, a.annotate(lease), opts)
}

func (a annotatingLeases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return a.LeaseInterface.Update(ctx, a.annotate(lease), opts)
}

func (a annotatingLeases) annotate(lease *coordinationv1.Lease) *coordinationv1.Lease {
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	maps.Copy(lease.Annotations, a.annotations)
	return lease
}

// pollInterval is the interval between a standby's reads of the Lease.
const pollInterval = 250 * time.Millisecond

// standbyLock is a lock whose Get, while this process is a standby, returns once the Lease
// can be acquired: the holder has released it, or has not renewed it for its duration.
//
// client-go (v0.36, tools/leaderelection) retries only after 2 to 4.4 s, its RetryPeriod
// plus jitter of up to JitterFactor. A node that needs addresses would wait that long for
// the successor of a stopped leader. A shorter RetryPeriod would make the leader renew just
// as often.
//
// It is not safe for concurrent use; an elector makes one call at a time.
type standbyLock struct {
	resourcelock.Interface

	// since is when this process acquired the Lease; zero before that.
	since metav1.Time
	// seen is the record read last, and changed is when this process first read it. As in
	// client-go, the clocks of other processes do not matter.
	seen    []byte
	changed time.Time
}

// Get implements resourcelock.Interface.
func (l *standbyLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	for {
		record, raw, err := l.Interface.Get(ctx)
		if err != nil || !l.since.IsZero() || record.HolderIdentity == "" || record.HolderIdentity == l.Identity() {
			return record, raw, err
		}
		if !bytes.Equal(raw, l.seen) {
			l.seen, l.changed = raw, time.Now()
		}
		lasts := time.Duration(record.LeaseDurationSeconds) * time.Second
		if time.Since(l.changed) >= lasts {
			free := *record
			free.HolderIdentity = ""
			return &free, raw, nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return record, raw, nil // held by another
		}
	}
}

// Create implements resourcelock.Interface.
func (l *standbyLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *standbyLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

// write sets AcquireTime to when this process acquired the Lease. The elector would set it
// to when the process began to wait, because it reads the clock before it calls Get.
func (l *standbyLock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if record.HolderIdentity != l.Identity() {
		return write(ctx, record)
	}
	record.AcquireTime = l.since
	if l.since.IsZero() {
		record.AcquireTime = metav1.Now()
		record.RenewTime = record.AcquireTime
	}
	err := write(ctx, record)
	if err == nil {
		l.since = record.AcquireTime
	}
	return err
}
