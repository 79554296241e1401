package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// oldCommit is an operator of before: the last one without PodIPPoolHistory.
const oldCommit = "d4dd8e2d84d986a5b2abd0a8ee4f352ad0b5dc70"

// Faults of an upgrade.
const (
	rolledBack fault = "old version led"
	rolledOut  fault = "new version led"
)

func (c *chaos) versionFaults() lane {
	return lane{gap: 2 * time.Second, work: 5 * time.Second, faults: []named{
		{rolledOut, c.letLead(numbered(1))}, {rolledBack, c.letLead(numbered(0))},
		{leaderKilled, c.killLeader}, {bothKilled, c.killBoth}, {leaderPaused, c.pauseLeader},
	}}
}

// startOldVersion lets the first operator be the old version.
func startOldVersion(ctx context.Context, c *chaos) error {
	source, err := checkOut(ctx, oldCommit)
	if err != nil {
		return err
	}
	c.operator[0].args[0], err = buildOperator(ctx, source, oldCommit, nil)
	return err
}

func numbered(i int) func(c *chaos) *operator {
	return func(c *chaos) *operator { return c.operator[i] }
}

// letLead lets an operator take over what the other has begun: drains, cooldowns and
// handshakes.
func (c *chaos) letLead(which func(*chaos) *operator) injection {
	return func(ctx context.Context, random *rand.Rand) error {
		leads, waits, err := c.lead(ctx)
		if err != nil {
			return err
		}
		if err := c.network.drain(ctx, random); err != nil {
			return err
		}
		c.load.surge(ctx)
		if leads == which(c) {
			return harness.Sleep(ctx, upTo(random, 5*time.Second))
		}
		return c.takesOver(ctx, leads, waits, func() {})
	}
}

// upgrade ends an upgrade: both operators are the new version.
func upgrade(ctx context.Context, c *chaos) error {
	old, begin := c.operator[0], time.Now()
	for _, o := range c.operator {
		if o.led() == 0 {
			return fmt.Errorf("%w: %s never led", errIdle, o.name)
		}
	}
	old.mu.Lock()
	old.args = append([]string{c.operator[1].args[0]}, old.args[1:]...)
	old.mu.Unlock()
	if err := old.kill(0); err != nil {
		return err
	}
	return until(ctx, leadWithin, func(context.Context) error {
		if old.electsSince().Before(begin) || leader(c.operator) == nil {
			return errors.New("the operators do not run")
		}
		return nil
	})
}
