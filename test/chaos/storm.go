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

// injection does one fault, and returns when it is over.
type injection func(ctx context.Context, random *rand.Rand) error

// lane is faults that come one after the other.
type lane struct {
	faults map[fault]injection
	order  []fault // as they are printed
	// gap is the longest pause between two.
	gap time.Duration
	// work is how long a leader may work after some of them, at most.
	work time.Duration
}

func (c *chaos) lanes() []lane {
	return []lane{
		{gap: 3 * time.Second, work: 10 * time.Second, faults: map[fault]injection{
			leaderKilled: c.killLeader, standbyKilled: c.killStandby, bothKilled: c.killBoth, leaderPaused: c.pauseLeader,
			apiKilled: c.killAPIServer, etcdKilled: c.killEtcd, allKilled: c.killControlPlane, apiPaused: c.pauseAPIServer,
		}, order: []fault{leaderKilled, standbyKilled, bothKilled, leaderPaused, apiKilled, etcdKilled, allKilled, apiPaused}},
		{gap: 3 * time.Second, faults: map[fault]injection{
			cidrAdded: c.addCIDR, cidrDrained: c.drainCIDR, drainsEnded: c.endDrains,
			agentsRestarted: c.restartAgents, nodesReplaced: c.replaceNodes, blockDeleted: c.deleteBlock,
		}, order: []fault{cidrAdded, cidrDrained, drainsEnded, agentsRestarted, nodesReplaced, blockDeleted}},
	}
}

// allFaults returns all kinds, in the order in which they are printed.
func allFaults() []fault {
	var out []fault
	for _, l := range (&chaos{}).lanes() {
		out = append(out, l.order...)
	}
	return out
}

// storm injects faults while pods come and go, for c.Faults and until there was one of
// each kind. Then everything runs again.
func (c *chaos) storm(ctx context.Context) error {
	busy, calm := context.WithCancel(ctx)
	defer calm()
	var load, lanes sync.WaitGroup
	load.Go(func() { c.load.run(busy) })
	end := time.Now().Add(c.Faults)
	all := c.lanes()
	errs := make([]error, len(all))
	for i, l := range all {
		random := rand.New(rand.NewPCG(c.Seed, uint64(10+i)))
		lanes.Go(func() { errs[i] = c.inject(ctx, l, random, end) })
	}
	lanes.Wait()
	calm()
	load.Wait()
	return errors.Join(errs...)
}

// inject injects the faults of a lane, each kind once in random order, then any.
func (c *chaos) inject(ctx context.Context, l lane, random *rand.Rand, end time.Time) error {
	order := random.Perm(len(l.order))
	for i := 0; i < len(order) || time.Now().Before(end); i++ {
		if err := harness.Sleep(ctx, time.Duration(random.Int64N(int64(l.gap)))); err != nil {
			return err
		}
		var kind fault
		if i < len(order) {
			kind = l.order[order[i]]
		} else {
			kind = l.order[random.IntN(len(l.order))]
		}
		c.say("  %s", kind)
		if err := l.faults[kind](ctx, random); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		c.mu.Lock()
		c.faults[kind]++
		c.mu.Unlock()
		if err := c.letWork(ctx, l.work, random); err != nil {
			return err
		}
	}
	return nil
}

// letWork gives the operators time after two of three faults, so that the next one
// hits them at work, and not always at their start.
func (c *chaos) letWork(ctx context.Context, most time.Duration, random *rand.Rand) error {
	if most == 0 || random.IntN(3) == 0 {
		return nil
	}
	if _, err := c.awaitLeader(ctx, nil); err != nil {
		return err
	}
	return harness.Sleep(ctx, upTo(random, most))
}
