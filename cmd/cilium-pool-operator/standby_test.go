package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// contender is a process that wants to acquire the Lease.
type contender struct {
	lock         *standbyLock
	leads, ended chan struct{}
	stop         context.CancelFunc
}

// contend starts a contender that uses the Lease with its default durations.
func contend(t *testing.T, server kubernetes.Interface, name string) *contender {
	t.Helper()
	lock := &standbyLock{Interface: lockOf(server, name)}
	ctx, stop := context.WithCancel(t.Context())
	c := &contender{lock: lock, leads: make(chan struct{}), ended: make(chan struct{}), stop: stop}
	lasts := defaultOptions().leaseDuration
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: lasts, RenewDeadline: renewDeadline(lasts), RetryPeriod: retryPeriod(lasts), ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(c.leads) }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		elector.Run(ctx)
	}()
	t.Cleanup(stop)
	return c
}

func lockOf(server kubernetes.Interface, identity string) *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "network", Name: "lease"}, Client: server.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
}

func leaseOf(t *testing.T, server kubernetes.Interface) *coordinationv1.Lease {
	t.Helper()
	lease, err := server.CoordinationV1().Leases("network").Get(t.Context(), "lease", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// In these tests time advances only when all goroutines are blocked, so timers fire exactly
// when they are due.

func TestStandbyFollowsAStoppedLeaderAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fake.NewClientset()
		first := contend(t, server, "first")
		<-first.leads
		second := contend(t, server, "second")
		time.Sleep(2 * time.Minute)
		select {
		case <-second.leads:
			t.Fatal("two lead")
		default:
		}

		begin := time.Now()
		first.stop()
		<-second.leads
		if took := time.Since(begin); took > pollInterval {
			t.Errorf("it leads after %s, and polls every %s", took, pollInterval)
		}
		lease := leaseOf(t, server)
		if since := begin.Sub(lease.Spec.AcquireTime.Time); *lease.Spec.HolderIdentity != "second" || since > 0 {
			t.Errorf("%s leads since %s before the other was stopped", *lease.Spec.HolderIdentity, since)
		}
		acquired := lease.Spec.AcquireTime.Time
		time.Sleep(time.Minute)
		lease = leaseOf(t, server)
		if !lease.Spec.AcquireTime.Time.Equal(acquired) {
			t.Errorf("it led since %s, and a minute later since %s", acquired, lease.Spec.AcquireTime)
		}
		if age := time.Since(lease.Spec.RenewTime.Time); age > 3*time.Second {
			t.Errorf("the Lease was renewed %s ago", age)
		}
		second.stop()
		<-second.ended
	})
}

func TestStandbyWaitsForTheLeaseOfAKilledLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fake.NewClientset()
		holder, lasts := "killed", int32(15)
		now := metav1.NewMicroTime(time.Now().Add(-time.Hour)) // by the clock of its holder
		if _, err := server.CoordinationV1().Leases("network").Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "network", Name: "lease"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &lasts, AcquireTime: &now, RenewTime: &now},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		c := contend(t, server, "standby")
		time.Sleep(10 * time.Second)
		lease := leaseOf(t, server) // it is renewed once more
		renewed := metav1.NewMicroTime(now.Add(time.Second))
		lease.Spec.RenewTime = &renewed
		if _, err := server.CoordinationV1().Leases("network").Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		<-c.leads
		if took := time.Since(begin); took < 25*time.Second || took > 25*time.Second+2*pollInterval {
			t.Errorf("it leads after %s; the Lease was renewed after 10 s and lasts 15 s", took)
		}
		c.stop()
		<-c.ended
	})
}

// A process that stops while it waits does not acquire the Lease, and does not delay its
// shutdown.
func TestStandbyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fake.NewClientset()
		first := contend(t, server, "first")
		<-first.leads
		second := contend(t, server, "second")
		time.Sleep(time.Minute)
		begin := time.Now()
		second.stop()
		<-second.ended
		if took := time.Since(begin); took > 0 {
			t.Errorf("it ended after %s", took)
		}
		if holder := *leaseOf(t, server).Spec.HolderIdentity; holder != "first" {
			t.Errorf("%s leads", holder)
		}
		first.stop()
		<-first.ended
	})
}

// The process may already hold the Lease: the response to the write that acquired it may
// have been lost.
func TestStandbyThatLeadsAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fake.NewClientset()
		lock := lockOf(server, "me")
		now := metav1.Now()
		if err := lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 15, AcquireTime: now, RenewTime: now}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		record, _, err := (&standbyLock{Interface: lock}).Get(t.Context())
		if err != nil || record.HolderIdentity != "me" || time.Since(begin) > 0 {
			t.Errorf("after %s: %+v (%v)", time.Since(begin), record, err)
		}
	})
}
