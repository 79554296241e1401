package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/chaos/etcd"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Faults of a member of etcd.
const (
	memberLeadMoved      fault = "lead of etcd moved to another member"
	memberLeaderKilled   fault = "leader of etcd killed"
	memberLeaderPaused   fault = "leader of etcd paused while another led"
	memberFollowerKilled fault = "follower of etcd killed"
	quorumLost           fault = "two of three members of etcd killed"
)

func (c *chaos) memberFaults() lane {
	return lane{gap: 2 * time.Second, work: 5 * time.Second, faults: []named{
		{memberLeaderPaused, c.pauseMemberLeader}, {memberLeaderKilled, c.killMembers(0)}, {memberLeadMoved, c.moveMemberLead},
		{memberFollowerKilled, c.killMembers(1)}, {quorumLost, c.killMembers(0, 1)}, {leaderKilled, c.killLeader},
	}}
}

// sockets returns the sockets of all members of etcd.
func (c *chaos) sockets() []string {
	var out []string
	for i := range c.scenario.etcdMembers {
		out = append(out, filepath.Join(c.cluster.Dir(), controlplane.EtcdSocket(i)))
	}
	return out
}

// memberLeader waits until a member of etcd leads, other than the given one.
func (c *chaos) memberLeader(ctx context.Context, other int) (found int, err error) {
	err = until(ctx, leadWithin, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // a paused member does not answer
		defer cancel()
		var err error
		if found, err = etcd.Leader(ctx, c.sockets()...); err == nil && found == other {
			err = fmt.Errorf("member %d leads", found)
		}
		return err
	})
	return found, err
}

const noMember = -1

func (c *chaos) moveMemberLead(ctx context.Context, random *rand.Rand) error {
	for range 3 {
		c.load.surge(ctx)
		if _, err := c.memberLeader(ctx, noMember); err != nil {
			return err
		}
		next, err := etcd.MoveLeader(ctx, c.sockets()...)
		if err != nil {
			return err
		}
		c.say("    member %d of etcd leads", next)
		if err := harness.Sleep(ctx, upTo(random, 2*time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// killMembers kills members, chosen by their distance from the leader, and restarts them.
func (c *chaos) killMembers(from ...int) injection {
	return func(ctx context.Context, random *rand.Rand) error {
		leads, err := c.memberLeader(ctx, noMember)
		if err != nil {
			return err
		}
		c.load.surge(ctx)
		for _, i := range from {
			if err := c.cluster.KillEtcdMember((leads + i) % c.scenario.etcdMembers); err != nil {
				return err
			}
		}
		if err := harness.Sleep(ctx, time.Second+upTo(random, 3*time.Second)); err != nil {
			return err
		}
		for _, i := range from {
			if err := c.cluster.StartEtcdMember(ctx, (leads+i)%c.scenario.etcdMembers); err != nil {
				return err
			}
		}
		return c.cluster.Ready(ctx)
	}
}

func (c *chaos) pauseMemberLeader(ctx context.Context, random *rand.Rand) error {
	leads, err := c.memberLeader(ctx, noMember)
	if err != nil {
		return err
	}
	c.load.surge(ctx)
	if err := c.cluster.SignalEtcdMember(leads, syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { _ = c.cluster.SignalEtcdMember(leads, syscall.SIGCONT) }() // again, in case of an error
	if err := c.otherMemberLeads(ctx, leads); err != nil {
		return err
	}
	if err := harness.Sleep(ctx, upTo(random, 2*time.Second)); err != nil {
		return err
	}
	if err := c.cluster.SignalEtcdMember(leads, syscall.SIGCONT); err != nil {
		return err
	}
	return c.cluster.Ready(ctx)
}

// otherMemberLeads waits until the members that are not paused have a leader.
func (c *chaos) otherMemberLeads(ctx context.Context, paused int) error {
	sockets := c.sockets()
	running := slices.Delete(slices.Clone(sockets), paused, paused+1)
	return until(ctx, leadWithin, func(ctx context.Context) error {
		_, err := etcd.Leader(ctx, running...)
		return err
	})
}
