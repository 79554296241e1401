package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	fullBlocks = 50_000
	fullPools  = 200

	blocksPerNode = 16
	// usedPerNode is how many of its 480 addresses each node's agent reports.
	usedPerNode = 80
	// bindersAtOnce is how many pods are bound or deleted concurrently.
	bindersAtOnce = 16

	oursUnpaced = ours + ", nothing paced"
)

// pools measures many pools with many blocks. The operator restarts; then a pod is bound to
// every node, which needs another block for it; then these pods are deleted, and the blocks
// are reclaimed.
func pools(n int) measure {
	own := unpaced()
	own.name = oursUnpaced
	return measure{name: "pools", run: poolsRun, rounds: 1, contenders: []contender{own},
		world: bed.World{Pools: n, Blocks: blocksPerNode, Used: usedPerNode, Agents: true, Settled: true}}
}

// manyPools measures a quarter, half and all of the blocks.
func (b *bench) manyPools(ctx context.Context) error {
	m := pools(b.pools)
	sizes := poolSizes(b.blocks)
	largest := m.world
	largest.Nodes = sizes[len(sizes)-1]
	if err := largest.Fits(); err != nil || b.pools < 1 || sizes[0] < 1 {
		return errors.Join(fmt.Errorf("-blocks=%d -pools=%d: there must be a pool, and %d blocks or more, and all must fit", b.blocks, b.pools, 4*blocksPerNode), err)
	}
	for _, nodes := range sizes {
		if err := b.all(ctx, m, nodes); err != nil {
			return err
		}
	}
	return nil
}

// poolSizes returns the numbers of nodes that have a quarter, half and all of the blocks.
func poolSizes(blocks int) []int {
	nodes := blocks / blocksPerNode
	return []int{nodes / 4, nodes / 2, nodes}
}

func poolsRun(ctx context.Context, r *run) error {
	r.values["pools"], r.values["blocks"] = float64(r.world.Pools), float64(r.world.Nodes*r.world.Blocks)
	if err := r.restarted(ctx); err != nil {
		return err
	}
	nodes, err := r.observe(ctx, bed.CiliumNodes)
	if err != nil {
		return err
	}
	blocks, err := r.observe(ctx, bed.Blocks)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	counting, err := r.countStatuses(ctx, cancel)
	if err != nil {
		return err
	}
	if err := r.answer(ctx, cancel); err != nil {
		return err
	}
	before, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	nodes.Expect(r.world.Nodes, func(event []byte) bool { return podCIDRs(event, blocksPerNode+1) })
	if err := r.changePools(ctx, "claims", nodes, counting, r.bindTo); err != nil {
		return err
	}
	blocks.Expect(r.world.Nodes, isDeletion)
	if err := r.changePools(ctx, "returns", blocks, counting, r.unbindFrom); err != nil {
		return err
	}
	r.values["returns writes"] -= float64(r.world.Nodes) // the agents' answers, one each
	return r.spent(ctx, before, nil, bed.Observed{})
}

// restarted starts the operator, and records what it takes until it may decide, and until
// it is idle.
func (r *run) restarted(ctx context.Context) error {
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
	r.values["restart s"] = time.Since(r.process.Started).Seconds()
	after, err := r.rested(ctx)
	if err != nil {
		return err
	}
	r.values["restart cpu s"] = after.Contender.CPU.Seconds()
	r.values["restart writes"] = after.Counts.Sub(before.Counts).Writes()
	r.values["restart peak MiB"] = float64(after.Contender.Peak) / (1 << 20)
	return nil
}

func (r *run) rested(ctx context.Context) (bed.Usage, error) {
	if _, err := r.Idle(ctx, r.process); err != nil {
		return bed.Usage{}, err
	}
	return r.Usage(ctx, r.process)
}

func podOf(node int) *corev1.Pod {
	return bed.BoundPod(node, fmt.Sprintf("bound-%05d", node), netip.Addr{})
}

func (r *run) bindTo(ctx context.Context, node int) error {
	if err := r.Client.Create(ctx, podOf(node)); err != nil {
		return fmt.Errorf("bind a pod: %w", err)
	}
	return nil
}

func (r *run) unbindFrom(ctx context.Context, node int) error {
	if err := r.Client.Delete(ctx, podOf(node), client.GracePeriodSeconds(0)); err != nil {
		return fmt.Errorf("delete a pod: %w", err)
	}
	return nil
}

// changePools changes each node, waits for what o expects and until the pools' statuses
// count all changes, and records what that took.
func (r *run) changePools(ctx context.Context, what string, o *bed.Observer, counting *statuses, do func(ctx context.Context, node int) error) error {
	before, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	counting.begin()
	begin := time.Now()
	if err := harness.Parallel(ctx, r.world.Nodes, bindersAtOnce, do); err != nil {
		return err
	}
	_, last, _, err := o.Wait(ctx)
	if err != nil {
		return err
	}
	took, err := counting.wait(ctx)
	if err != nil {
		return err
	}
	after, err := r.rested(ctx)
	if err != nil {
		return err
	}
	counts := after.Counts.Sub(before.Counts)
	r.values[what+" s"] = last.Sub(begin).Seconds()
	r.values[what+" cpu s"] = (after.Contender.CPU - before.Contender.CPU).Seconds()
	r.values[what+" writes"] = counts.Writes("podipblocks", "ciliumnodes")
	r.values[what+" pool writes"] = counts.Writes("podippools")
	r.values[what+" changes"] = float64(len(took))
	p50, p99, worst := percentile(took, 50), percentile(took, 99), percentile(took, 100)
	r.values[what+" status p50 ms"], r.values[what+" status p99 ms"], r.values[what+" status max ms"] = p50, p99, worst
	r.bench.say("%s: %s s; status behind a change: median %s, 99th percentile %s, worst %s ms", what, number(r.values[what+" s"]), number(p50), number(p99), number(worst))
	return nil
}
