package agent

import (
	"context"
	"sync"
	"time"
)

// trigger runs a function on request, at most once per interval, like pkg/trigger/trigger.go,
// except that waiting ends with the context. Requests made while it waits or runs lead to one
// more run.
type trigger struct {
	interval time.Duration
	wake     chan struct{}

	mu              sync.Mutex
	wanted, running bool
}

func newTrigger(interval time.Duration) *trigger {
	return &trigger{interval: interval, wake: make(chan struct{}, 1)}
}

func (t *trigger) request(string) {
	t.mu.Lock()
	t.wanted = true
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run serves requests until ctx ends. The first is served without delay.
func (t *trigger) run(ctx context.Context, do func()) {
	var last time.Time
	for {
		if t.next() {
			if !last.IsZero() && !sleep(ctx, time.Until(last.Add(t.interval))) {
				return
			}
			last = time.Now()
			do()
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
	}
}

// next takes a request, if there is one.
func (t *trigger) next() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted, t.running = false, t.wanted
	return t.running
}

// idle reports whether there is no request and none being served.
func (t *trigger) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.wanted && !t.running
}

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
