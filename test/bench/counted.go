package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// counted returns the measures of bench quick alone: only the counts of this operator matter.
func counted() []measure {
	return []measure{
		// The CiliumNodes do not exist yet.
		{name: "join", run: coldRun, world: bed.World{NoCiliumNodes: true}, contenders: []contender{operator()},
			checks: func(_ contender, n float64) []check { return writes(blockWrites*n, 2*n, 0, 2*n) }},
		{name: "reclaim", run: reclaimRun, world: bed.World{Blocks: 2, Used: 4, Agents: true}, contenders: []contender{unpaced()},
			checks: func(_ contender, n float64) []check {
				return append(always(), equal("own writes", reclaimWrites*n), equal("other writes", 0))
			}},
		{name: "react", run: reactRun, world: bed.World{Blocks: 1, Used: 24}, contenders: []contender{operator()},
			checks: func(_ contender, n float64) []check {
				return append(always(), equal("writes per pod", writesPerClaim), eventsOfClaims(n/2))
			}},
		// The same, with the pods and one patch of an FRRConfiguration for each new block.
		{name: "routes", run: reactRun, world: bed.World{Blocks: 1, Used: 24, Settled: true, Routes: true}, contenders: []contender{routing()},
			checks: func(_ contender, n float64) []check {
				return append(always(), equal("writes per pod", writesPerClaim), eventsOfClaims(n/2), equal("other writes", n))
			}},
	}
}

const (
	// blockWrites of a new block: its creation, and its condition Published.
	blockWrites = 2
	// reclaimWrites per block: the block drains, cools down, loses its finalizer and is
	// deleted; the CiliumNode gets marks, loses addresses, loses entries.
	reclaimWrites = 7
	// writesPerClaim are the create of a block, the patch of a CiliumNode, and the block's condition
	// Published.
	writesPerClaim = 3
)

// routing is the operator with routes by frr-k8s.
func routing() contender { return operator("--frr-k8s-namespace=" + bed.FRRNamespace) }

// unpaced is the operator with all waits of a reclaim zero and no pacing.
func unpaced() contender {
	return operator("--reclaim-idle-for=0s", "--ack-hold=0s", "--cooldown=0s",
		"--reclaims-per-minute=Unlimited", "--reclaims-per-minute-per-pool=Unlimited", "--agent-settle-time=0s")
}

// reclaimRun edits the pool so that every node returns one of its two blocks.
func reclaimRun(ctx context.Context, r *run) error {
	versions, err := r.observe(ctx, bed.CiliumNodes)
	if err != nil {
		return err
	}
	blocks, err := r.observe(ctx, bed.Blocks)
	if err != nil {
		return err
	}
	blocks.Expect(r.world.Nodes, func(event []byte) bool { return bytes.HasPrefix(event, []byte(`{"type":"DELETED"`)) })
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f, err := bed.Follow(ctx, r.Config(), bed.CiliumNodes, "")
	if err != nil {
		return err
	}
	go func() { cancel(f.Run(ctx, func(event []byte) { r.answer(ctx, event, cancel) })) }()
	if err := r.triggered(ctx, blocks, versions, r.edit(`{"spec":{"reclaim":{"thresholdPercent":50,"idleFor":"0s"}}}`)); err != nil {
		return err
	}
	r.values["own writes"] = r.values["block writes"] + r.values["node writes"] - float64(r.world.Nodes) // the agents' answers, one each
	return nil
}

// answer acts as the agent of an event's CiliumNode: it agrees to release all marked
// addresses by one request.
func (r *run) answer(ctx context.Context, event []byte, fail context.CancelCauseFunc) {
	if !bytes.Contains(event, []byte(`"`+string(expand.Marked)+`"`)) {
		return
	}
	if err := r.agree(ctx, event); err != nil {
		fail(fmt.Errorf("answer for an agent: %w", err))
	}
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

// reactRun binds a pod to each node of the second half, which needs another block for it,
// while the agents of the other nodes report.
func reactRun(ctx context.Context, r *run) error {
	o, err := r.observe(ctx, bed.CiliumNodes)
	if err != nil {
		return err
	}
	half := r.world.Nodes / 2
	o.Expect(half, func(event []byte) bool { return r.c.published(event, 2) })
	reports, pods := half, half
	err = r.triggered(ctx, o, o, func(ctx context.Context) error {
		const binders = 64
		return harness.Parallel(ctx, 2, 2, func(ctx context.Context, part int) error {
			if part == 0 {
				return r.report(ctx, half, reports, reports)
			}
			return harness.Parallel(ctx, pods, binders, func(ctx context.Context, k int) error {
				if err := r.Client.Create(ctx, bed.BoundPod(r.world.Nodes-1-k, fmt.Sprintf("bound-%05d", k), netip.Addr{})); err != nil {
					return fmt.Errorf("bind a pod: %w", err)
				}
				return nil
			})
		})
	})
	if err != nil {
		return err
	}
	r.values["writes per pod"] = (r.values["block writes"] + r.values["node writes"] - float64(reports)) / float64(pods)
	return nil
}
