package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/floor"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// storm makes every node need one more block at once, by an edit of the pool.
func storm() measure {
	return measure{name: "storm", run: stormRun, rounds: 2, contenders: []contender{bare("claim"), operator()}, world: bed.World{Blocks: 1, Used: 15}}
}

// stormInMultiPool is storm in multi-pool mode, in which agents decide what they need: all of
// them request another block. It is a measure of its own, as these requests take time too.
func stormInMultiPool(peers bool) measure {
	m := storm()
	serve := bareInMultiPool("serve")
	serve.waits = true
	m.name, m.rounds, m.contenders = m.name+inThatMode, 1, []contender{serve, inMultiPool()}
	if peers {
		peer := ciliumOperator(multiPool, bed.MultiPool, true)
		peer.waits = true
		m.contenders = append(m.contenders, peer)
	}
	return m
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
	for _, value := range []string{"writes", "node writes", "versions"} {
		r.values[value] -= float64(r.world.Nodes) // the agents' requests, one each
	}
	return nil
}

// requestAll writes all agents' requests for a second block.
func (r *run) requestAll(ctx context.Context) error {
	return harness.Parallel(ctx, r.world.Nodes, floor.Workers, func(ctx context.Context, i int) error { return r.request(ctx, i, 2) })
}

// edit returns a function that edits the pool.
func (r *run) edit(patch string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: bed.PoolName}}
		return r.Client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}

// triggered first waits until a contender that waits for work is idle, triggers its work,
// and waits for what waited expects. Any other contender starts at that moment instead.
func (r *run) triggered(ctx context.Context, waited, versions *bed.Observer, trigger func(ctx context.Context) error) error {
	if r.c.waits {
		if err := r.ready(ctx); err != nil {
			return err
		}
	}
	before, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	seen, begin := versions.Seen(), time.Now()
	if r.c.waits {
		err = trigger(ctx)
	} else {
		err = r.start()
	}
	if err != nil {
		return err
	}
	if err := r.published(ctx, waited, begin); err != nil {
		return err
	}
	return r.spent(ctx, before, versions, seen)
}

// reclaim edits the pool so that every node returns one of its two blocks, with all waits
// zero and no pacing.
func reclaim() measure {
	return measure{name: "reclaim", run: reclaimRun, rounds: 1, world: bed.World{Blocks: 2, Used: 4, Agents: true},
		contenders: []contender{bare("reclaim"), unpaced()}}
}

// unpaced is the operator with all waits of a reclaim zero and no pacing.
func unpaced() contender {
	return operator("--reclaim-idle-for=0s", "--ack-hold=0s", "--cooldown=0s",
		"--reclaims-per-minute=0", "--reclaims-per-minute-per-pool=0", "--agent-settle-time=0s")
}

func reclaimRun(ctx context.Context, r *run) error {
	versions, err := r.observe(ctx, bed.CiliumNodes)
	if err != nil {
		return err
	}
	blocks, err := r.observe(ctx, bed.Blocks)
	if err != nil {
		return err
	}
	blocks.Expect(r.world.Nodes, isDeletion)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := r.answer(ctx, cancel); err != nil {
		return err
	}
	if err := r.triggered(ctx, blocks, versions, r.edit(`{"spec":{"reclaim":{"thresholdPercent":50,"idleFor":"0s"}}}`)); err != nil {
		return err
	}
	// Subtract the agents' answers, one per node.
	r.values["own writes"] = r.values["block writes"] + r.values["node writes"] - float64(r.world.Nodes)
	r.values["writes per block"] = r.values["own writes"] / float64(r.world.Nodes)
	return nil
}

// answer acts as the agents: they agree to release marked addresses, with one request per
// node, however many addresses are marked.
func (r *run) answer(ctx context.Context, fail func(error)) error {
	f, err := bed.Follow(ctx, r.Config(), bed.CiliumNodes, "")
	if err != nil {
		return err
	}
	queue := make(chan []byte, r.world.Nodes)
	go func() {
		defer close(queue)
		err := f.Run(ctx, func(event []byte) {
			if bytes.Contains(event, []byte(`"`+string(expand.Marked)+`"`)) {
				queue <- event
			}
		})
		if err != nil {
			fail(err)
		}
	}()
	const agentsAtOnce = 8
	for range agentsAtOnce {
		go func() {
			for line := range queue {
				if err := r.agree(ctx, line); err != nil && ctx.Err() == nil {
					fail(fmt.Errorf("answer for an agent: %w", err))
				}
			}
		}()
	}
	return nil
}

func (r *run) agree(ctx context.Context, event []byte) error {
	var e struct{ Object ciliumv2.CiliumNode }
	if err := json.Unmarshal(event, &e); err != nil {
		return err
	}
	released := map[string]string{}
	for addr, status := range e.Object.Status.IPAM.ReleaseIPs {
		if string(status) == string(expand.Marked) {
			released[addr] = string(expand.Ready)
		}
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"ipam": map[string]any{"release-ips": released}}})
	if err != nil {
		return err
	}
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: e.Object.Name}}
	return r.Client.Status().Patch(ctx, cn, client.RawPatch(types.MergePatchType, body))
}
