package main

import (
	"context"
	"syscall"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// failovers measure, with two replicas and a Lease as each ships it, from the end of the leader until a Node that joins at
// that moment has a block.
func failovers() []measure {
	const lease = "15s" // the last flag counts, and contenders otherwise have a longer one
	own := "--leader-elect-lease-duration=" + lease
	peers := []string{"--leader-election-lease-duration=" + lease, "--leader-election-renew-deadline=10s"}
	contenders := []contender{operator(own), inMultiPool(own), ciliumOperator(bed.ClusterPool, peers...), ciliumOperator(bed.MultiPool, peers...)}
	var all []measure
	for _, end := range []struct {
		name   string
		signal syscall.Signal
	}{{"failover-stopped", syscall.SIGTERM}, {"failover-killed", syscall.SIGKILL}, {"failover-hung", syscall.SIGSTOP}} {
		all = append(all, measure{
			name: end.name, contenders: contenders, world: bed.World{Blocks: 1, Used: 15, Settled: true},
			run:    func(ctx context.Context, r *run) error { return failoverRun(ctx, r, end.signal) },
			checks: func(contender, float64) []check { return nil },
		})
	}
	return all
}

func failoverRun(ctx context.Context, r *run, end syscall.Signal) error {
	leader, err := r.c.start(r.Stage, r.world, "leader")
	if err != nil {
		return err
	}
	if err := r.Until(ctx, leader, r.c.says...); err != nil {
		return err
	}
	if err := r.IdleFor(ctx, leader, resting); err != nil {
		return err
	}
	r.process, err = r.c.start(r.Stage, r.world, "standby")
	if err != nil {
		return err
	}
	if err := r.IdleFor(ctx, r.process, resting); err != nil {
		return err
	}
	o, err := r.observeJoin(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := leader.Signal(end); err != nil {
		return err
	}
	if err := r.Join(ctx, r.world, r.world.Nodes); err != nil {
		return err
	}
	served, err := o.Wait(ctx)
	if err != nil {
		return err
	}
	r.values["seconds"] = served.Sub(begin).Seconds()
	return leader.Kill()
}
