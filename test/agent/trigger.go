package agent

import (
	"context"
	"sync/atomic"
	"time"
)

// trigger runs a function when asked to, at most once per interval: what
// pkg/trigger/trigger.go does, save that waiting ends with the context.
// Requests made while it waits or runs lead to one more run.
type trigger struct {
	interval time.Duration
	wanted   chan struct{}
	// requests so far, and how many of them have been served.
	asked, served atomic.Int64
}

func newTrigger(interval time.Duration) *trigger {
	return &trigger{interval: interval, wanted: make(chan struct{}, 1)}
}

func (t *trigger) request(string) {
	t.asked.Add(1)
	select {
	case t.wanted <- struct{}{}:
	default:
	}
}

// run serves requests until ctx ends. The first is served without delay.
func (t *trigger) run(ctx context.Context, do func()) {
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wanted:
		}
		if !last.IsZero() && !sleep(ctx, time.Until(last.Add(t.interval))) {
			return
		}
		last = time.Now()
		serving := t.asked.Load()
		do()
		t.served.Store(serving)
	}
}

func (t *trigger) idle() bool { return t.served.Load() == t.asked.Load() }

// sleep returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
