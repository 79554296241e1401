package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// oursMultiPool writes a CIDR per block, as cilium-operator's multi-pool mode does.
const oursMultiPool = ours + ", mode multi-pool"

// modes measures a cold start in multi-pool mode, and then agents that request more than
// their block has, one at a time.
func modes(peers bool, requests, rate int) measure {
	floor := bareInMultiPool("serve")
	floor.rounds = 1
	m := measure{name: "modes", rounds: 2, contenders: []contender{floor, inMultiPool()}, run: func(ctx context.Context, r *run) error {
		if err := coldRun(ctx, r); err != nil {
			return err
		}
		return requestsRun(ctx, r, min(requests, r.world.Nodes), rate)
	}}
	if peers {
		m.contenders = append(m.contenders, ciliumOperator(multiPool, bed.MultiPool, true)) // as shipped: in cold
	}
	return m
}

// bareInMultiPool is a bare program in multi-pool mode.
func bareInMultiPool(program string) contender {
	c := bare(program)
	c.mode, c.published = bed.OwnMultiPool, allocated
	return c
}

// multiPoolOnly is the value of -mode with which only contenders in multi-pool mode run.
const multiPoolOnly = "multi-pool"

// inThatMode follows the names of measures whose contenders all run in multi-pool mode.
const inThatMode = separator + multiPoolOnly + " mode"

// multiPoolMeasures returns what runs with -mode=multi-pool, in clusters that crd mode is not
// measured in. Each is a separate measure with its own results, so that it takes nothing from
// the tables that compare modes; modes has no other contenders anyway.
func multiPoolMeasures(peers bool) map[string][]measure {
	floors := map[string]contender{"restart": bareInMultiPool("stream"), "rest": bareInMultiPool("watch")}
	out := map[string][]measure{"modes": {modes(peers, modesRequests, modesRate)}, "storm": {stormInMultiPool(peers)}}
	for name, m := range map[string]measure{"restart": restart(peers), "rest": rest(peers, restRate, restReports)} {
		m.name += inThatMode
		m.contenders = slices.DeleteFunc(m.contenders, func(c contender) bool { return c.mode != bed.OwnMultiPool && c.mode != bed.MultiPool })
		m.contenders = append([]contender{floors[name]}, m.contenders...)
		out[name] = []measure{m}
	}
	return out
}

// requestsRun measures from the response to an agent's request until a watch shows the
// second block.
func requestsRun(ctx context.Context, r *run, requests, rate int) error {
	o := r.observers[0]
	o.Expect(requests, func(event []byte) bool { return r.c.published(event, 2) })
	asked, err := pace{rate: rate, total: requests, atOnce: 1}.nodes(ctx, func(i int) (node int, err error) { return i, r.request(ctx, i, 2) })
	if err != nil {
		return err
	}
	_, _, at, err := o.Wait(ctx)
	if err != nil {
		return err
	}
	r.reacted(asked, at)
	return nil
}

// request writes what node i's agent requests when it needs that many blocks.
func (r *run) request(ctx context.Context, i, blocks int) error {
	w := bed.World{Blocks: blocks}
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"ipam": map[string]any{"pools": map[string]any{"requested": w.Requested()}}}})
	if err != nil {
		return err
	}
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: bed.NodeName(i)}}
	if err := r.Client.Patch(ctx, cn, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("request of node %d: %w", i, err)
	}
	return nil
}
