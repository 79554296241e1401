package main

import (
	"bytes"
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// looksEvery is how often a standby looks at the Lease.
const looksEvery = 250 * time.Millisecond

// standbyLock is a lock whose Get, for a process that has yet to lead, returns when the lead
// is to be had: the Lease was given up, or has not been renewed for as long as it lasts.
//
// client-go (v0.36, tools/leaderelection) looks again after 2 to 4.4 s, which is its
// RetryPeriod and up to JitterFactor of it more. A node in need would wait that long for the
// successor of a leader that was stopped. Less of it would have the leader renew as often.
//
// It is not safe for concurrent use; an elector makes one call at a time.
type standbyLock struct {
	resourcelock.Interface

	// since is when this process took the lead; zero before.
	since metav1.Time
	// seen is the record that was seen last, and changed when it was first seen. The clocks
	// of others are not asked, as by client-go.
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
		case <-time.After(looksEvery):
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

// write says since when this process leads. The elector would say since when it waits, as it
// looks at the clock before it calls Get.
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
