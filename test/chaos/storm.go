package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// fault is a kind of fault.
type fault string

// injection injects one fault, and returns when it is over.
type injection func(ctx context.Context, random *rand.Rand) error

// named is a fault with its kind.
type named struct {
	kind fault
	do   injection
}

// lane is a sequence of faults, injected one after the other.
type lane struct {
	faults []named
	// gap is the longest pause between two faults.
	gap time.Duration
	// work is the longest time that a leader may work after some of them.
	work time.Duration
}

// storm injects faults while pods are created and deleted, for c.duration and until there was
// one of each kind. Then it waits until everything runs again.
func (c *chaos) storm(ctx context.Context) error {
	busy, calm := context.WithCancel(ctx)
	defer calm()
	var load, lanes sync.WaitGroup
	load.Go(func() { c.load.run(busy) })
	end := time.Now().Add(c.duration)
	all := c.lanes()
	errs := make([]error, len(all))
	for i, l := range all {
		random := rand.New(rand.NewPCG(c.seed, uint64(10+i)))
		lanes.Go(func() { errs[i] = c.inject(ctx, l, random, end) })
	}
	lanes.Wait()
	calm()
	load.Wait()
	return errors.Join(errs...)
}

// inject injects the faults of a lane: each kind once in random order, then random ones.
func (c *chaos) inject(ctx context.Context, l lane, random *rand.Rand, end time.Time) error {
	order := random.Perm(len(l.faults))
	for i := 0; i < len(order) || time.Now().Before(end); i++ {
		if err := harness.Sleep(ctx, time.Duration(random.Int64N(int64(l.gap)))); err != nil {
			return err
		}
		f := l.faults[random.IntN(len(l.faults))]
		if i < len(order) {
			f = l.faults[order[i]]
		}
		c.say("  %s", f.kind)
		if err := f.do(ctx, random); err != nil {
			return fmt.Errorf("%s: %w", f.kind, err)
		}
		c.mu.Lock()
		c.faults[f.kind]++
		c.mu.Unlock()
		if err := c.letWork(ctx, l.work, random); err != nil {
			return err
		}
	}
	return nil
}

// letWork waits after two of three faults, so that the next fault does not always hit the
// operators at their start.
func (c *chaos) letWork(ctx context.Context, most time.Duration, random *rand.Rand) error {
	if most == 0 || random.IntN(3) == 0 {
		return nil
	}
	if _, err := c.awaitLeader(ctx, nil); err != nil {
		return err
	}
	return harness.Sleep(ctx, upTo(random, most))
}
