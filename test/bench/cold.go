package main

import (
	"context"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// cold measures, for nodes without a block, from the contender's start until all nodes are
// published.
func cold() measure {
	return measure{name: "cold", run: coldRun, contenders: []contender{bare("claim"), operator(), bareInMultiPool("serve"), inMultiPool()},
		checks: func(c contender, n float64) []check {
			other := 0.0
			if c.name == oursMultiPool {
				other = 1 // the CiliumPodIPPool that agents need
			}
			return append(writes(blockWrites*n, n, other, n), served(n))
		}}
}

func coldRun(ctx context.Context, r *run) error {
	o, err := r.observe(ctx, bed.CiliumNodes)
	if err != nil {
		return err
	}
	o.Expect(r.world.Nodes, func(event []byte) bool { return r.c.published(event, 1) })
	r.c.waits = false // it starts now, and finds its work
	return r.triggered(ctx, o, o, nil)
}

// restart measures, where everything is as it should be, from the contender's start until
// it has read that, leads, and may decide. cilium-operator reads all pods, this operator and
// the floor the pods that need an address.
func restart() measure {
	return measure{name: "restart", run: restartRun, contenders: []contender{bare("stream"), operator(), inMultiPool()},
		world: bed.World{Blocks: 2, Used: 20, Pods: 20, Settled: true},
		checks: func(contender, float64) []check {
			return append(always(), equal("lists of nodes", 1), equal("lists of ciliumnodes", 1), equal("lists of podipblocks", 1),
				equal("lists of podippools", 1), equal("lists of pods", 2), equal("writes", 0)) // pods that need an address, and the agents'
		}}
}

func restartRun(ctx context.Context, r *run) error {
	if err := r.Warm(ctx); err != nil {
		return err
	}
	before, err := r.Usage(ctx, nil)
	if err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return err
	}
	if err := r.Until(ctx, r.process, r.c.says...); err != nil {
		return err
	}
	r.values["seconds"] = time.Since(r.process.Started).Seconds()
	calm := bed.Calm
	if r.world.Mode == bed.ClusterPool {
		calm = resting
	}
	if err := r.spent(ctx, before, calm); err != nil {
		return err
	}
	for _, kind := range []string{"nodes", "ciliumnodes", "podipblocks", "podippools", "pods"} {
		r.values["lists of "+kind] = r.counts.Lists[kind]
	}
	return nil
}
