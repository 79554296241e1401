package main

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// skew is how far the operators' clocks differ. A replica whose clock is ahead shortens a
// cooldown that another one has started by that much.
const skew = 6 * time.Second

// clockOverlay replaces the operator's clock with one that is wrong.
const (
	clockFile    = "pkg/controller/setup.go"
	clockText    = "Clock: clock.RealClock{}"
	clockReplace = "Clock: newSkewed(clock.RealClock{})"
	skewedFile   = "pkg/controller/clock_skewed.go"
	skewedText   = `package controller

import (
	"os"
	"time"

	"k8s.io/utils/clock"
)

// newSkewed is a clock that is wrong by CLOCK_SKEW.
func newSkewed(real clock.PassiveClock) clock.PassiveClock {
	by, err := time.ParseDuration(os.Getenv("CLOCK_SKEW"))
	if err != nil {
		panic(err)
	}
	return skewed{real, by}
}

type skewed struct {
	clock.PassiveClock
	by time.Duration
}

func (s skewed) Now() time.Time                  { return s.PassiveClock.Now().Add(s.by) }
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }
`
)

// Faults of clocks.
const (
	aheadLed  fault = "operator whose clock is ahead led"
	behindLed fault = "operator whose clock is behind led"
	clockSet  fault = "clocks exchanged"
)

func (c *chaos) clockFaults() lane {
	return lane{gap: 2 * time.Second, work: 5 * time.Second, faults: []named{
		{behindLed, c.letLead(byClock(-1))}, {aheadLed, c.letLead(byClock(1))}, {clockSet, c.setClocks}, {leaderKilled, c.killLeader}, {leaderPaused, c.pauseLeader},
	}}
}

// byClock returns the operator whose clock is ahead, or with -1 the other one.
func byClock(sign int) func(c *chaos) *operator {
	return func(c *chaos) *operator {
		return slices.MaxFunc(c.operator, func(a, b *operator) int { return sign * cmp.Compare(a.clock, b.clock) })
	}
}

// skewClocks builds an operator whose clock can be wrong. This takes a build of its own: Go
// programs ask the kernel for the time, which is the same for all.
func skewClocks(ctx context.Context, c *chaos) error {
	setup, err := c.edited(clockFile, clockText, clockReplace)
	if err != nil {
		return err
	}
	program, err := c.buildOperator(ctx, harness.Root(), "skewed", map[string][]byte{clockFile: setup, skewedFile: []byte(skewedText)})
	if err != nil {
		return err
	}
	for i, o := range c.operator {
		o.args[0] = program
		o.setClock(time.Duration(i) * cmp.Or(c.Skew, skew))
	}
	return nil
}

// setClock sets the clock of the next process.
func (o *operator) setClock(by time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clock = by
}

// setClocks restarts the operators with their clocks exchanged.
func (c *chaos) setClocks(ctx context.Context, random *rand.Rand) error {
	leads, waits, err := c.lead(ctx)
	if err != nil {
		return err
	}
	c.load.surge(ctx)
	begin, was := time.Now(), leads.clock
	leads.setClock(waits.clock)
	waits.setClock(was)
	for _, o := range c.operator {
		if err := o.kill(upTo(random, time.Second)); err != nil {
			return err
		}
	}
	return c.awaitLeaderSince(ctx, begin)
}
