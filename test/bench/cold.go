package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// cold measures, for nodes without a block, from the contender's start until all nodes are
// published.
func cold(peers bool) measure {
	m := measure{name: "cold", run: coldRun, contenders: []contender{bare("claim"), operator()}}
	if peers {
		cidr, kcm := bare("cidr"), nodeipam()
		cidr.rounds, kcm.rounds = 1, 1
		m.contenders = append(m.contenders, cidr,
			ciliumOperator(clusterPool, bed.ClusterPool, true), ciliumOperator(multiPool, bed.MultiPool, true), kcm,
			ciliumOperator(clusterPoolAsIs, bed.ClusterPool, false), ciliumOperator(multiPoolAsIs, bed.MultiPool, false))
	}
	return m
}

// join is cold where the CiliumNodes do not exist yet either.
func join() measure {
	return measure{name: "join", run: coldRun, world: bed.World{NoCiliumNodes: true},
		contenders: []contender{bare("join"), operator()}}
}

// encodings compares the ways to write one pool of 30 addresses and a podCIDR.
func encodings() measure {
	return measure{name: "patches", run: coldRun, rounds: 1, contenders: []contender{bare("merge"), bare("untracked"), bare("least"), bare("partial"), bare("json"), bare("apply")}}
}

func coldRun(ctx context.Context, r *run) error {
	o, err := r.observe(ctx, r.c.path)
	if err != nil {
		return err
	}
	reached, first := announced(func(event []byte) bool { return r.c.published(event, 1) })
	o.Expect(r.world.Nodes, reached)
	before, err := r.Usage(ctx, nil)
	if err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return err
	}
	cpu := r.cpuAt(ctx, first)
	if err := r.published(ctx, o, r.process.Started); err != nil {
		return err
	}
	used, err := cpu()
	if err != nil {
		return err
	}
	r.values[firstCPU] = used.Seconds()
	return r.spent(ctx, before, o, bed.Observed{})
}

// firstCPU is the CPU that the contender had used when the first node was published.
const firstCPU = "first cpu s"

// announced returns reached, and a channel that is closed once it has returned true.
func announced(reached func(event []byte) bool) (func(event []byte) bool, <-chan struct{}) {
	first := make(chan struct{})
	announce := sync.OnceFunc(func() { close(first) })
	return func(event []byte) bool {
		ok := reached(event)
		if ok {
			announce()
		}
		return ok
	}, first
}

// cpuAt reads the contender's CPU when a channel is closed. The returned function waits for
// that.
func (r *run) cpuAt(ctx context.Context, when <-chan struct{}) func() (time.Duration, error) {
	var use bed.Use
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-when:
			use, err = r.process.Use()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}()
	return func() (time.Duration, error) {
		<-ended
		return use.CPU, err
	}
}

// published waits for what o expects, and records how long after begin that was.
func (r *run) published(ctx context.Context, o *bed.Observer, begin time.Time) error {
	first, last, _, err := o.Wait(ctx)
	if err != nil {
		return err
	}
	r.values["seconds"] = last.Sub(begin).Seconds()
	r.values["first s"] = first.Sub(begin).Seconds()
	return nil
}

// restart measures, where everything is as it should be, from the contender's start until
// it has read that, leads, and may decide. All contenders read the same pods,
// cilium-operator without a selector. The row without pods shows what pods cost.
func restart(peers bool) measure {
	whole, podless, own := bare("list"), operator(), inMultiPool()
	podless.name, podless.podless = oursPodless, true
	whole.rounds, podless.rounds, own.rounds = 1, 1, 1
	m := measure{name: "restart", run: restartRun, contenders: []contender{bare("stream"), operator(), whole, podless, own},
		world: bed.World{Blocks: 2, Used: 20, Pods: 20, Settled: true, Still: true}}
	if peers {
		slow := ciliumOperator(clusterPool, bed.ClusterPool, true)
		slow.rounds = 1
		m.contenders = append(m.contenders, slow, ciliumOperator(multiPool, bed.MultiPool, true))
	}
	return m
}

// alone restarts this operator in a cluster of one node without pods, which shows what the
// process takes on its own.
func alone() measure {
	m := restart(false)
	m.contenders = slices.DeleteFunc(m.contenders, func(c contender) bool { return !c.podless })
	for i := range m.contenders {
		m.contenders[i].rounds = 0
	}
	return m
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
	if len(r.c.says) > 0 {
		if err := r.Until(ctx, r.process, r.c.says...); err != nil {
			return err
		}
		r.values["seconds"] = time.Since(r.process.Started).Seconds()
	}
	if r.world.Mode == bed.ClusterPool {
		r.calm = resting // on a fast machine it is idle before it writes every CiliumNode
	}
	if err := r.spent(ctx, before, nil, bed.Observed{}); err != nil {
		return err
	}
	for _, kind := range []string{"nodes", "ciliumnodes", "podipblocks", "podippools", "pods"} {
		r.values["lists of "+kind] = r.counts.Lists[kind]
	}
	return nil
}
