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

// restart measures, where everything is as it should be but for one node without a block, from the contender's
// start until that node has one; of the floor, until it has read everything. This operator and the floor read the pods
// that need an address, cilium-operator all.
func restart() measure {
	return measure{name: "restart", run: restartRun, contenders: []contender{bare("stream"), operator(), inMultiPool()},
		world: bed.World{Blocks: 2, Used: 20, Pods: 20, Settled: true},
		checks: func(contender, float64) []check {
			return append(always(), equal("block writes", blockWrites), equal("node writes", 1), equal("other writes", 0),
				equal("lists of nodes", 1), equal("lists of ciliumnodes", 1), equal("lists of podipblocks", 1), equal("lists of podippools", 1),
				equal("lists of pods", 2)) // pods that need an address, and the agents'
		}}
}

func restartRun(ctx context.Context, r *run) error {
	if err := r.Warm(ctx); err != nil {
		return err
	}
	if err := r.Join(ctx, r.world, r.world.Nodes); err != nil {
		return err
	}
	o, err := r.observeJoin(ctx)
	if err != nil {
		return err
	}
	before, err := r.Usage(ctx, nil)
	if err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return err
	}
	end, err := r.restarted(ctx, o)
	if err != nil {
		return err
	}
	r.values["seconds"] = end.Sub(r.process.Started).Seconds()
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

// restarted waits until o has seen the node with its block, and returns when that was. A floor serves no node: for it,
// restarted waits until it has read everything.
func (r *run) restarted(ctx context.Context, o *bed.Observer) (time.Time, error) {
	if !r.c.isFloor() {
		return o.Wait(ctx)
	}
	err := r.Until(ctx, r.process, r.c.says...)
	return time.Now(), err
}
