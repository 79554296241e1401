package main

import (
	"context"
	"encoding/json"
	"fmt"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/floor"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// storm makes every node need one more block at once: in crd mode by an edit of the pool, in
// multi-pool mode by requests of all agents.
func storm() measure {
	serve := bareInMultiPool("serve")
	serve.waits = true
	return measure{name: "storm", run: stormRun, world: bed.World{Blocks: 1, Used: 15},
		contenders: []contender{bare("claim"), operator(), serve, inMultiPool()},
		checks:     func(_ contender, n float64) []check { return append(writes(blockWrites*n, n, 0, n), served(n)) }}
}

func stormRun(ctx context.Context, r *run) error {
	o, err := r.observe(ctx, bed.CiliumNodes)
	if err != nil {
		return err
	}
	o.Expect(r.world.Nodes, func(event []byte) bool { return r.c.published(event, 2) })
	if r.world.Mode == bed.CRD {
		// 15 of 30 addresses are in use.
		return r.triggered(ctx, o, o, r.edit(`{"spec":{"expand":{"thresholdPercent":40}}}`))
	}
	if err := r.triggered(ctx, o, o, r.requestAll); err != nil {
		return err
	}
	for _, value := range []string{"writes", "writes until served", "node writes", "versions"} {
		r.values[value] -= float64(r.world.Nodes) // the agents' requests, one each
	}
	return nil
}

// requestAll writes all agents' requests for a second block.
func (r *run) requestAll(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"ipam": map[string]any{"pools": map[string]any{"requested": bed.World{Blocks: 2}.Requested()}}}})
	if err != nil {
		return err
	}
	return harness.Parallel(ctx, r.world.Nodes, floor.Workers, func(ctx context.Context, i int) error {
		cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: bed.NodeName(i)}}
		if err := r.Client.Patch(ctx, cn, client.RawPatch(types.MergePatchType, body)); err != nil {
			return fmt.Errorf("request of node %d: %w", i, err)
		}
		return nil
	})
}

// edit returns a function that edits the pool.
func (r *run) edit(patch string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: bed.PoolName}}
		return r.Client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}
