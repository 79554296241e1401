package main

import (
	"context"
	"fmt"
	"maps"

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
	o.history = &leaseHistory{recovery: o.recovery, gap: leasesMissed * o.leaseDuration, end: o.end}
	lock.Client = annotating{lock.Client, map[string]string{v1alpha1.SettingsAnnotation: settings}, o.history}
	return lock, nil
}

// noRecorders is used because the lock is created before the manager, which has the
// recorders.
type noRecorders struct{ recorder.Provider }

func (noRecorders) GetEventRecorderFor(string) record.EventRecorder { return nil }

// annotating adds annotations to every Lease it writes, and passes each Lease to history.
type annotating struct {
	coordinationv1client.LeasesGetter
	annotations map[string]string
	history     *leaseHistory
}

func (a annotating) Leases(namespace string) coordinationv1client.LeaseInterface {
	return annotatingLeases{a.LeasesGetter.Leases(namespace), a.annotations, a.history}
}

type annotatingLeases struct {
	coordinationv1client.LeaseInterface
	annotations map[string]string
	history     *leaseHistory
}

func (a annotatingLeases) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := a.LeaseInterface.Get(ctx, name, opts)
	if err == nil {
		err = a.history.read(ctx, a.LeaseInterface, lease)
	}
	return lease, err
}

func (a annotatingLeases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	created, err := a.LeaseInterface.Create(ctx, a.annotate(lease), opts)
	if err == nil {
		if err = a.history.read(ctx, a.LeaseInterface, created); err == nil {
			a.history.wrote(created)
		}
	}
	return created, err
}

func (a annotatingLeases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if a.history.ends() {
		return a.Get(ctx, lease.Name, metav1.GetOptions{})
	}
	a.history.acquire(lease)
	updated, err := a.LeaseInterface.Update(ctx, a.annotate(lease), opts)
	if err == nil {
		a.history.wrote(updated)
	}
	return updated, err
}

func (a annotatingLeases) annotate(lease *coordinationv1.Lease) *coordinationv1.Lease {
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	maps.Copy(lease.Annotations, a.annotations)
	a.history.annotate(lease)
	return lease
}
