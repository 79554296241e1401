package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Faults of processes.
const (
	leaderKilled  fault = "leader killed"
	standbyKilled fault = "standby killed"
	bothKilled    fault = "both operators killed"
	leaderPaused  fault = "leader paused while another led"
	apiKilled     fault = "kube-apiserver killed"
	etcdKilled    fault = "etcd killed"
	allKilled     fault = "etcd and kube-apiserver killed"
	apiPaused     fault = "kube-apiserver paused"
)

// leadWithin limits the time until an operator leads.
const leadWithin = 2 * time.Minute

func (c *chaos) processFaults() lane {
	return lane{gap: 3 * time.Second, work: 10 * time.Second, faults: []named{
		{leaderKilled, c.killLeader}, {standbyKilled, c.killStandby}, {bothKilled, c.killBoth}, {leaderPaused, c.pauseLeader},
		{apiKilled, c.killAPIServer}, {etcdKilled, c.killEtcd}, {allKilled, c.killControlPlane}, {apiPaused, c.pauseAPIServer},
	}}
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}

// awaitLeader waits for a leader other than this one.
func (c *chaos) awaitLeader(ctx context.Context, other *operator) (*operator, error) {
	var found *operator
	err := until(ctx, leadWithin, func(context.Context) error {
		if found = leader(c.operator); found == nil || found == other {
			return errors.New("no operator leads")
		}
		return nil
	})
	return found, err
}

func (c *chaos) standby(of *operator) *operator {
	for _, o := range c.operator {
		if o != of {
			return o
		}
	}
	return of
}

// killFor kills a replica, which stays dead for at most so long.
func killFor(most time.Duration) func(*operator, *rand.Rand) error {
	return func(o *operator, random *rand.Rand) error { return o.kill(upTo(random, most)) }
}

func (c *chaos) killLeader(ctx context.Context, random *rand.Rand) error {
	return c.toLeader(killFor(3*time.Second))(ctx, random)
}

func (c *chaos) killStandby(ctx context.Context, random *rand.Rand) error {
	return c.toStandby(killFor(3*time.Second))(ctx, random)
}

func (c *chaos) killBoth(ctx context.Context, random *rand.Rand) error {
	return c.toBoth(killFor(4*time.Second))(ctx, random)
}

// toLeader does something to the leader at work.
func (c *chaos) toLeader(do func(*operator, *rand.Rand) error) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, random *rand.Rand) error {
		o, err := c.awaitLeader(ctx, nil)
		if err != nil {
			return err
		}
		c.load.surge(ctx)
		if err := harness.Sleep(ctx, upTo(random, time.Second)); err != nil {
			return err
		}
		return do(o, random)
	}
}

// toStandby does something to the replica that does not lead.
func (c *chaos) toStandby(do func(*operator, *rand.Rand) error) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, random *rand.Rand) error {
		o, err := c.awaitLeader(ctx, nil)
		if err != nil {
			return err
		}
		return do(c.standby(o), random)
	}
}

// toBoth does something to each replica.
func (c *chaos) toBoth(do func(*operator, *rand.Rand) error) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, random *rand.Rand) error {
		if _, err := c.awaitLeader(ctx, nil); err != nil {
			return err
		}
		var err error
		for _, o := range c.operator {
			err = errors.Join(err, do(o, random))
		}
		return err
	}
}

// pauseLeader pauses the leader at work, and resumes it while the other one leads.
func (c *chaos) pauseLeader(ctx context.Context, random *rand.Rand) error {
	o, err := c.awaitLeader(ctx, nil)
	if err != nil {
		return err
	}
	c.load.surge(ctx)
	if err := harness.Sleep(ctx, upTo(random, time.Second)); err != nil {
		return err
	}
	resume, err := o.pause()
	if err != nil {
		return err
	}
	_, err = c.awaitLeader(ctx, o)
	if err == nil {
		err = harness.Sleep(ctx, upTo(random, 2*time.Second))
	}
	return errors.Join(err, resume())
}

func (c *chaos) killAPIServer(ctx context.Context, random *rand.Rand) error {
	if err := c.cluster.KillAPIServer(); err != nil {
		return err
	}
	if err := harness.Sleep(ctx, upTo(random, 3*time.Second)); err != nil {
		return err
	}
	return c.cluster.StartAPIServer(ctx)
}

func (c *chaos) killEtcd(ctx context.Context, random *rand.Rand) error {
	if err := c.cluster.KillEtcd(); err != nil {
		return err
	}
	if err := harness.Sleep(ctx, upTo(random, 3*time.Second)); err != nil {
		return err
	}
	if err := c.cluster.StartEtcd(ctx); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	return nil
}

func (c *chaos) killControlPlane(ctx context.Context, random *rand.Rand) error {
	if err := errors.Join(c.cluster.KillEtcd(), c.cluster.KillAPIServer()); err != nil {
		return err
	}
	if err := harness.Sleep(ctx, upTo(random, 2*time.Second)); err != nil {
		return err
	}
	if err := c.cluster.StartEtcd(ctx); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	return c.cluster.StartAPIServer(ctx)
}

// pauseAPIServer makes all requests hang for a while.
func (c *chaos) pauseAPIServer(ctx context.Context, random *rand.Rand) error {
	_, pid := c.cluster.PIDs()
	if pid == 0 {
		return errors.New("kube-apiserver ended by itself")
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	err := harness.Sleep(ctx, time.Second+upTo(random, leaseDuration))
	return errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
}
