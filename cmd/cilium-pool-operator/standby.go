package main

import (
	"bytes"
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

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

	// acquired is when this process acquired the Lease; zero before that.
	acquired metav1.Time
	// seen is the record read last, and changed is when this process first read it. As in
	// client-go, the clocks of other processes do not matter.
	seen    []byte
	changed time.Time
}

// Get implements resourcelock.Interface.
func (l *standbyLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	for {
		record, raw, err := l.Interface.Get(ctx)
		if err != nil || !l.acquired.IsZero() || record.HolderIdentity == "" || record.HolderIdentity == l.Identity() {
			return record, raw, err
		}
		if !bytes.Equal(raw, l.seen) {
			l.seen = raw
			l.changed = time.Now()
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
	record.AcquireTime = l.acquired
	if l.acquired.IsZero() {
		record.AcquireTime = metav1.Now()
		record.RenewTime = record.AcquireTime
	}
	err := write(ctx, record)
	if err == nil {
		l.acquired = record.AcquireTime
	}
	return err
}
