//go:build linux

package main

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

//go:embed manifests/web.yaml
var webManifest string

const (
	podsTimeout = 6 * time.Minute
	// returnTimeout is the time for blocks to be returned: they are idle, the operator asks
	// the agent, the agent agrees at its next report, and the block cools down.
	returnTimeout = 4 * time.Minute
	burstNode     = "n1"
	burstPods     = 80
)

const (
	quickPace = "--set reclaim.idleFor=10s,handshake.ackHold=5s,cilium.agentSettleTime=10s,cooldown=5s"
	// quicken makes idle blocks return while a scenario waits.
	quicken = upgradeOperator + quickPace
)

// scaleScenario creates and deletes many pods: none fails for lack of an address, and their
// nodes get blocks and return them.
func scaleScenario(ctx context.Context, t *trial) error {
	if _, err := t.shell(ctx, quicken); err != nil {
		return err
	}
	if err := t.cluster.Apply(ctx, webManifest); err != nil {
		return err
	}
	_, lackedBefore, _, err := t.failedSandboxes(ctx)
	if err != nil {
		return err
	}
	for _, replicas := range []int{6, 60, 3} {
		if err := t.scale(ctx, "web", replicas); err != nil {
			return err
		}
	}
	if err := t.burst(ctx); err != nil {
		return err
	}
	total, lacked, example, err := t.failedSandboxes(ctx)
	if err != nil {
		return err
	}
	t.check("sandboxes that failed for lack of an address", lacked-lackedBefore, lacked == lackedBefore)
	t.note("sandboxes that failed at all, since the cluster began", total)
	if total > 0 {
		t.say("for example: %s", example)
	}
	return nil
}

func (t *trial) scale(ctx context.Context, deployment string, replicas int) error {
	began := time.Now()
	if _, err := t.resize(ctx, deployment, replicas); err != nil {
		return err
	}
	t.check(fmt.Sprintf("%s at %d replicas, all Ready, after", deployment, replicas), seconds(began), true)
	return nil
}

// burst starts pods at once on one node, and deletes them.
func (t *trial) burst(ctx context.Context) error {
	before, err := t.burstBlocks(ctx)
	if err != nil {
		return err
	}
	if err := t.scale(ctx, "burst", burstPods); err != nil {
		return err
	}
	most, err := t.burstBlocks(ctx)
	if err != nil {
		return err
	}
	t.check("blocks of "+burstNode+" before and with the burst", fmt.Sprintf("%d, %d", before, most), most > before)
	return t.endBurst(ctx, before)
}

// endBurst deletes these pods and waits until the node has as few blocks as before.
func (t *trial) endBurst(ctx context.Context, before int) error {
	began := time.Now()
	if err := t.scale(ctx, "burst", 0); err != nil {
		return err
	}
	err := kube.Await(ctx, returnTimeout, "the blocks of the burst are returned", func(ctx context.Context) (bool, string) {
		now, err := t.burstBlocks(ctx)
		return err == nil && now <= before, fmt.Sprintf("%d blocks, %v", now, err)
	})
	t.check(fmt.Sprintf("back to %d blocks, after", before), seconds(began), err == nil)
	return err
}
