package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/link"
)

// Faults of the network between operators and the API server.
const (
	networkSlow      fault = "network slow"
	connectionsReset fault = "connections reset again and again"
	leaderCutOff     fault = "leader cut off until another led, then its writes arrived"
	answersLost      fault = "answers to the leader lost until another led"
	bothCutOff       fault = "both operators cut off"
	leaderHalfOpen   fault = "connections of the leader half-open"
	standbyHalfOpen  fault = "connections of the standby half-open when the leader died"
	endedCutOff      fault = "leader asked to end while cut off"
)

// endsWithin is the chart's terminationGracePeriodSeconds.
const endsWithin = 30 * time.Second

// takesOver kills the leader, and waits until the standby leads without a restart;
// then runs in between.
func (c *chaos) takesOver(ctx context.Context, leads, waits *operator, then func()) error {
	starts := waits.started()
	release, err := leads.keepDown(syscall.SIGKILL)
	if err != nil {
		return err
	}
	defer release()
	then()
	return until(ctx, c.noticesWithin(), func(context.Context) error {
		switch {
		case waits.started() != starts:
			return fmt.Errorf("%s was to take the lead, and ended", waits.name)
		case waits.leadsSince().IsZero():
			return fmt.Errorf("%s does not lead", waits.name)
		}
		return nil
	})
}

// pings returns client-go's times for dead connections: the idle time before a ping, and the
// limit of its answer. Small runs use shorter times, which saves half a
// minute.
func (s settings) pings() (idle, answer time.Duration) {
	if s.small {
		return 6 * time.Second, 3 * time.Second
	}
	return 30 * time.Second, 15 * time.Second // client-go's defaults
}

// pingEnv returns the environment variables that set them.
func (s settings) pingEnv() []string {
	idle, answer := s.pings()
	return []string{
		fmt.Sprintf("HTTP2_READ_IDLE_TIMEOUT_SECONDS=%.0f", idle.Seconds()), fmt.Sprintf("HTTP2_PING_TIMEOUT_SECONDS=%.0f", answer.Seconds()),
	}
}

// noticesWithin returns the longest time until a standby leads after its connections became
// half-open and the leader died.
func (s settings) noticesWithin() time.Duration {
	idle, answer := s.pings()
	return idle + answer + 3*leaseDuration
}

func (c *chaos) networkFaults() lane {
	return lane{gap: 2 * time.Second, work: 5 * time.Second, faults: []named{
		{leaderCutOff, c.cutOffLeader}, {standbyHalfOpen, c.forgetStandby},
		{networkSlow, c.slowNetwork}, {connectionsReset, c.resetConnections},
		{answersLost, c.loseAnswers}, {bothCutOff, c.cutOffBoth},
		{leaderHalfOpen, c.forgetLeader}, {endedCutOff, c.endCutOff},
	}}
}

// allLinks sets the quality of the links of all operators.
func (c *chaos) allLinks(q link.Quality) {
	for _, o := range c.operator {
		o.link.Set(q)
	}
}

// during sets a link quality for a time, while there is work.
func (c *chaos) during(ctx context.Context, d time.Duration, q link.Quality) error {
	c.allLinks(q)
	defer c.allLinks(link.Quality{})
	c.load.surge(ctx)
	return harness.Sleep(ctx, d)
}

func (c *chaos) slowNetwork(ctx context.Context, random *rand.Rand) error {
	return c.during(ctx, 4*time.Second+upTo(random, 6*time.Second), link.Quality{Delay: 50*time.Millisecond + upTo(random, 400*time.Millisecond)})
}

func (c *chaos) resetConnections(ctx context.Context, random *rand.Rand) error {
	c.load.surge(ctx)
	for range 10 {
		if err := harness.Sleep(ctx, upTo(random, 800*time.Millisecond)); err != nil {
			return err
		}
		for _, o := range c.operator {
			o.link.Reset()
		}
	}
	return nil
}

func (c *chaos) cutOffBoth(ctx context.Context, random *rand.Rand) error {
	return c.during(ctx, 2*time.Second+upTo(random, leaseDuration+2*time.Second), link.Partitioned)
}

// atWork cuts the leader off in the middle of its work, until another one leads.
func (c *chaos) atWork(ctx context.Context, random *rand.Rand, q link.Quality) (leads *operator, err error) {
	leads, _, err = c.lead(ctx)
	if err != nil {
		return nil, err
	}
	c.load.surge(ctx)
	if err := harness.Sleep(ctx, upTo(random, time.Second)); err != nil {
		return nil, err
	}
	leads.link.Set(q)
	if _, err = c.awaitLeader(ctx, leads); err == nil {
		err = harness.Sleep(ctx, upTo(random, 2*time.Second))
	}
	return leads, err
}

// cutOffLeader delivers the leader's requests only once another one leads, as TCP does
// after a partition, whether or not the old leader lives.
func (c *chaos) cutOffLeader(ctx context.Context, random *rand.Rand) error {
	defer c.allLinks(link.Quality{})
	o, err := c.atWork(ctx, random, link.Partitioned)
	if err != nil {
		return err
	}
	o.link.Set(link.Quality{KeepOpen: true})
	return harness.Sleep(ctx, 2*time.Second)
}

func (c *chaos) loseAnswers(ctx context.Context, random *rand.Rand) error {
	defer c.allLinks(link.Quality{})
	o, err := c.atWork(ctx, random, link.Quality{StallAnswers: true})
	if err == nil {
		o.link.Reset()
	}
	return err
}

// forgetLeader makes the leader's connections half-open, which it must detect by itself.
func (c *chaos) forgetLeader(ctx context.Context, _ *rand.Rand) error {
	o, _, err := c.lead(ctx)
	if err != nil {
		return err
	}
	c.load.surge(ctx)
	begin := time.Now()
	o.link.Forget()
	return until(ctx, leadWithin, func(context.Context) error {
		if o := leader(c.operator); o == nil || o.leadsSince().Before(begin) {
			return errors.New("no operator has taken the lead")
		}
		return nil
	})
}

// forgetStandby makes the standby's connections half-open without a notification. It must
// still become leader, without a restart, and act on later changes.
func (c *chaos) forgetStandby(ctx context.Context, _ *rand.Rand) error {
	leads, waits, err := c.lead(ctx)
	if err != nil {
		return err
	}
	if err := c.takesOver(ctx, leads, waits, waits.link.Forget); err != nil {
		return err
	}
	return c.serves(ctx)
}

// serves waits until the leader has acted on a newly created pool, which takes working
// watches.
func (c *chaos) serves(ctx context.Context) error {
	pool := unusedPool()
	if err := persist(ctx, func(ctx context.Context) error { return c.client.Create(ctx, pool) }); err != nil {
		return err
	}
	err := until(ctx, c.noticesWithin(), func(ctx context.Context) error {
		err := c.client.Get(ctx, client.ObjectKeyFromObject(pool), pool)
		if err == nil && len(pool.Status.Conditions) == 0 {
			err = errors.New("the leader does not act on a pool created since it leads")
		}
		return err
	})
	return errors.Join(err, persist(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(c.client.Delete(ctx, pool)) }))
}

// endCutOff stops the leader gracefully, as a kubelet does, while the API server does not
// answer.
func (c *chaos) endCutOff(ctx context.Context, _ *rand.Rand) error {
	o, _, err := c.lead(ctx)
	if err != nil {
		return err
	}
	c.load.surge(ctx)
	o.link.Set(link.Partitioned)
	defer o.link.Set(link.Quality{})
	ended, err := o.signal(syscall.SIGTERM, operatorBackoff)
	if err != nil {
		return err
	}
	return until(ctx, endsWithin, func(context.Context) error {
		select {
		case <-ended:
			return nil
		default:
			return errors.New("it was asked to end, and runs")
		}
	})
}
