package main

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// leaseServer is an API server with one Lease, of a version.
type leaseServer struct {
	coordinationv1client.LeaseInterface
	lease   *coordinationv1.Lease
	version int
}

func (s *leaseServer) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return s.lease.DeepCopy(), nil
}

func (s *leaseServer) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if lease.ResourceVersion != s.lease.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "lease", errors.New("it has changed"))
	}
	s.store(lease)
	return s.lease.DeepCopy(), nil
}

func (s *leaseServer) store(lease *coordinationv1.Lease) {
	s.version++
	s.lease = lease.DeepCopy()
	s.lease.ResourceVersion = strconv.Itoa(s.version)
}

// restore restores a Lease from a snapshot, with versions raised by bump.
func (s *leaseServer) restore(lease *coordinationv1.Lease, bump int) {
	s.version, _ = strconv.Atoi(lease.ResourceVersion)
	s.version += bump
	s.store(lease)
}

// elector is a process that takes part in the election.
type elector struct {
	annotatingLeases
	name  string
	ended error
}

func newElector(s *leaseServer, name string) *elector {
	e := &elector{name: name}
	e.annotatingLeases = annotatingLeases{s, nil, &leaseHistory{
		recovery: &state.Recovery{}, gap: time.Minute, end: func(err error) { e.ended = err },
	}}
	return e
}

func leaseHeldBy(holder string, renewed time.Time) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "lease", UID: "u", ResourceVersion: "1"}}
	lease.Spec.HolderIdentity = ptr.To(holder)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: renewed}
	return lease
}

// readLease reads the Lease, as a standby does.
func (e *elector) readLease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease, err := e.Get(t.Context(), "lease", metav1.GetOptions{})
	if err != nil && !errors.Is(err, errRestored) {
		t.Fatal(err)
	}
	return lease
}

// lead acquires or renews the Lease.
func (e *elector) lead(t *testing.T) {
	t.Helper()
	lease := e.readLease(t)
	lease.Spec.HolderIdentity = &e.name
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	if _, err := e.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A process that runs while etcd is restored ends, and the next one holds changes back. So does a process that takes
// the Lease from a holder that was gone for long, and none in other cases.
func TestLeaseShowsRestore(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		restored bool // a restore happens
		bump     int  // and raises versions
		standby  bool // the witness does not lead
		age      time.Duration
		holder   string
		ends     bool
		want     string // the annotation once the next process leads
	}{
		"a stopped leader":                 {holder: "", age: time.Hour},
		"a killed leader":                  {holder: "old", age: 20 * time.Second},
		"a leader that was away for long":  {holder: "old", age: 5 * time.Minute, want: "perhaps"},
		"a clock that was ahead for long":  {holder: "old", age: -5 * time.Minute, want: "perhaps"},
		"a leader through a restore":       {holder: "", restored: true, ends: true, want: "true"},
		"a standby through a restore":      {holder: "old", restored: true, standby: true, ends: true, want: "true"},
		"a restore that raises versions":   {holder: "old", restored: true, bump: 1_000_000_000, standby: true, ends: true, want: "true"},
		"a leader, versions raised":        {holder: "", restored: true, bump: 1_000_000_000, ends: true, want: "true"},
		"a clock that goes back, no other": {holder: "old", restored: true, bump: 100, standby: true},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := leaseHeldBy(test.holder, now.Add(-test.age))
			if test.restored {
				snapshot = leaseHeldBy(test.holder, now.Add(-30*time.Second))
			}
			server := &leaseServer{}
			server.store(snapshot)
			witness := newElector(server, "witness")
			if test.restored {
				other := newElector(server, "other")
				for range 5 {
					other.lead(t)
				}
				witness.readLease(t)
				if !test.standby {
					witness.lead(t)
				}
				snapshot.ResourceVersion = "1"
				server.restore(snapshot, test.bump)
				witness.readLease(t)
			}
			if (witness.ended != nil) != test.ends {
				t.Errorf("it has ended: %v, want %t", witness.ended, test.ends)
			}
			next := newElector(server, "next")
			next.lead(t)
			if got := server.lease.Annotations[v1alpha1.RestoredAnnotation]; got != test.want {
				t.Errorf("annotation %q, want %q", got, test.want)
			}
			if got := next.history.recovery; got.Active() != (test.want != "") || got.Certain() != (test.want == "true") {
				t.Errorf("changes are held back: %t, certainly: %t", got.Active(), got.Certain())
			}
		})
	}
}

// A standby that has seen the Lease renewed knows after any outage that etcd was not restored.
func TestStandbyKnowsAnOutage(t *testing.T) {
	server := &leaseServer{}
	server.store(leaseHeldBy("old", time.Now()))
	standby := newElector(server, "standby")
	standby.readLease(t)
	server.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)} // time passes
	standby.lead(t)
	if standby.history.recovery.Active() {
		t.Error("it holds changes back")
	}
}

// Where Leases have an etcd of their own, lists show a restore: the process that they tell of it marks the Lease, holds
// changes back meanwhile, and ends. Its own last write, which gives the Lease up, goes through.
func TestListsShowRestore(t *testing.T) {
	for name, leads := range map[string]bool{"a leader": true, "a standby": false} {
		t.Run(name, func(t *testing.T) {
			server := &leaseServer{}
			server.store(leaseHeldBy("", time.Now()))
			leader, witness := newElector(server, "leader"), newElector(server, "witness")
			leader.lead(t)
			witness.readLease(t)
			if leads {
				witness = leader
			}
			witness.history.listsWentBack()
			if !witness.history.recovery.Certain() {
				t.Error("nodes and blocks change until the process ends")
			}
			lease := server.lease.DeepCopy()
			if leads {
				if _, err := leader.Update(t.Context(), lease, metav1.UpdateOptions{}); !errors.Is(err, errRestored) {
					t.Errorf("it renews the Lease: %v", err)
				}
				released := server.lease.DeepCopy()
				released.Spec.HolderIdentity = ptr.To("")
				if _, err := leader.Update(t.Context(), released, metav1.UpdateOptions{}); err != nil {
					t.Errorf("it gives up the Lease: %v", err)
				}
			} else {
				witness.readLease(t)
			}
			if witness.ended == nil || server.lease.Annotations[v1alpha1.RestoredAnnotation] != "true" {
				t.Errorf("it has ended: %v, and the Lease has %v", witness.ended, server.lease.Annotations)
			}
		})
	}
}

// An observer and a shadow end, too, as their watches would stay silent. They mark no Lease, as they hold nothing back.
func TestObserverEndsAfterRestore(t *testing.T) {
	server := &leaseServer{}
	observer := newElector(server, "observer")
	observer.history.recovery = nil
	server.store(leaseHeldBy("", time.Now()))
	snapshot := server.lease.DeepCopy()
	for range 3 {
		observer.lead(t)
	}
	server.restore(snapshot, 0)
	observer.readLease(t)
	if observer.ended == nil || len(server.lease.Annotations) > 0 {
		t.Errorf("it has ended: %v, and the Lease has %v", observer.ended, server.lease.Annotations)
	}
}

// A leader follows the annotation that people set and remove, and removes it itself once its recovery has ended.
func TestRecoveryFollowsLease(t *testing.T) {
	server := &leaseServer{}
	server.store(leaseHeldBy("", time.Now()))
	leader := newElector(server, "leader")
	recovery := leader.history.recovery
	leader.lead(t)
	annotate := func(value string) {
		edited := server.lease.DeepCopy()
		delete(edited.Annotations, v1alpha1.RestoredAnnotation)
		if value != "" {
			metav1.SetMetaDataAnnotation(&edited.ObjectMeta, v1alpha1.RestoredAnnotation, value)
		}
		server.store(edited)
		leader.lead(t)
	}
	annotate("true")
	if !recovery.Certain() {
		t.Error("a person says that etcd was restored, and changes go on")
	}
	annotate("")
	if recovery.Active() {
		t.Error("a person says that changes may go on, and they are held back")
	}
	annotate("yes")
	recovery.End()
	leader.lead(t)
	if value, stands := server.lease.Annotations[v1alpha1.RestoredAnnotation]; stands || recovery.Active() {
		t.Errorf("the recovery has ended, and the annotation is %q, changes are held back: %t", value, recovery.Active())
	}
}
