package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// pace is a schedule of similar actions. A late action does not delay the next ones, unless
// atOnce are under way: a slow API server lowers the rate.
type pace struct {
	rate int // per second
	// total is their number; -1: until the context ends.
	total, atOnce int
}

// due returns when action n is due, relative to the first.
func (p pace) due(n int) time.Duration { return time.Duration(n) * time.Second / time.Duration(p.rate) }

// run performs the actions until all are done, one fails or ctx ends, and returns how many
// were done.
func (p pace) run(ctx context.Context, do func(n int) error) (int, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var failed sync.Once
	var next, done atomic.Int64
	var err error
	begin := time.Now()
	for range p.atOnce {
		wg.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if p.total >= 0 && n >= p.total || !sleep(ctx, time.Until(begin.Add(p.due(n)))) {
					return
				}
				if e := do(n); e != nil {
					failed.Do(func() { err = e })
					stop()
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return int(done.Load()), err
}

// sleep waits for d, and returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// nodes performs an action on one node after the other, and returns by node name when each
// was done.
func (p pace) nodes(ctx context.Context, do func(k int) (node int, err error)) (map[string]time.Time, error) {
	var mu sync.Mutex
	at := make(map[string]time.Time, p.total)
	done, err := p.run(ctx, func(k int) error {
		node, err := do(k)
		if err != nil {
			return err
		}
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		at[bed.NodeName(node)] = now
		return nil
	})
	if err == nil && done < p.total {
		err = context.Cause(ctx)
	}
	return at, err
}

// reached returns the rate per second at which things happened; 0 for fewer than two.
func reached(at map[string]time.Time) float64 {
	var first, last time.Time
	for _, t := range at {
		if first.IsZero() || t.Before(first) {
			first = t
		}
		if t.After(last) {
			last = t
		}
	}
	if !last.After(first) {
		return 0
	}
	return float64(len(at)-1) / last.Sub(first).Seconds()
}
