//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

const (
	// keptPods run while the operator is upgraded, spread over all nodes.
	keptPods = 12
	// oldPods make one node need a second block before the upgrade, newPods more blocks after
	// it.
	oldPods, newPods = 40, 80
)

// operatorScenario upgrades an operator of an earlier commit, with its own chart, CRDs and
// examples, to this checkout by helm upgrade, reverts it by helm rollback, and upgrades it
// again. Pods ping each other throughout.
func operatorScenario(ctx context.Context, t *trial) error {
	if err := t.installOld(ctx); err != nil {
		return err
	}
	if err := t.cluster.Apply(ctx, webManifest); err != nil {
		return err
	}
	if err := t.scale(ctx, "web", keptPods); err != nil {
		return err
	}
	first, err := t.burstBlocks(ctx)
	if err != nil {
		return err
	}
	if err := t.scale(ctx, "burst", oldPods); err != nil {
		return err
	}
	addresses, err := t.podAddresses(ctx)
	if err != nil {
		return err
	}
	restarts, err := t.restarts(ctx)
	if err != nil {
		return err
	}
	if err := t.startPings(ctx); err != nil {
		return err
	}
	const upgrade = "helm upgrade cilium-pool-operator charts/cilium-pool-operator -n kube-system --reset-then-reuse-values --wait --timeout=3m"
	for _, step := range []struct{ what, line string }{
		{"old to new", upgrade},
		{"rollback to old", "helm rollback cilium-pool-operator 1 -n kube-system --wait --timeout=3m"},
		{"old to new again, with changed values", upgrade + " --set log.level=debug,nodeWorkers=16"},
	} {
		if err := t.replace(ctx, step.what, step.line); err != nil {
			return err
		}
		if err := t.kept(ctx, step.what, addresses, restarts); err != nil {
			return err
		}
	}
	if err := t.growsAndReturns(ctx, first); err != nil {
		return err
	}
	return t.kept(ctx, "in the end", addresses, restarts)
}

// installOld installs the old operator's chart and pools from its own files.
func (t *trial) installOld(ctx context.Context) error {
	old := t.options.oldOperator
	if err := t.importAll(ctx, filepath.Join(old, "image.tar")); err != nil {
		return err
	}
	source := filepath.Join(old, "source")
	for _, line := range []string{
		"helm install cilium " + t.options.cilium + " -n kube-system -f examples/cilium-values.yaml" + forcedCilium,
		operatorInstall + filepath.Join(old, "cilium-pool-operator-*.tgz") + " -n kube-system -f " + source + "/examples/values.yaml --wait",
		"kubectl apply -f " + source + "/examples/pools.yaml",
	} {
		t.say("$ %s", line)
		if _, err := t.shell(ctx, line); err != nil {
			return err
		}
	}
	if err := t.documented(ctx, labelNodes); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{t.awaitInstalled, t.installDNS, t.installProbes} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// replace runs a Helm command, and records the image that all replicas run afterwards.
func (t *trial) replace(ctx context.Context, step, line string) error {
	before, err := t.blockNames(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = t.shell(ctx, line)
	t.check(step+": succeeds, after", seconds(began), err == nil)
	if err != nil {
		return err
	}
	if err := t.rollout(ctx, "kube-system", "deployment/cilium-pool-operator", agentsTimeout); err != nil {
		return err
	}
	images, err := t.cluster.Kubectl(ctx, "get", "pods", "--namespace=kube-system", "--selector=app.kubernetes.io/name=cilium-pool-operator",
		"--field-selector=status.phase=Running", "--output=jsonpath={.items[*].spec.containers[0].image}")
	if err != nil {
		return err
	}
	t.note(step+": the replicas' images", images)
	after, err := t.blockNames(ctx)
	t.check(step+": blocks are the same", before == after, before == after)
	return err
}

// kept compares the cluster with its initial state: addresses of pods, running containers, and
// no ping lost.
func (t *trial) kept(ctx context.Context, step string, addresses map[string]string, restarts int) error {
	now, err := t.podAddresses(ctx)
	if err != nil {
		return err
	}
	same := 0
	for pod, address := range addresses {
		if now[pod] == address {
			same++
		}
	}
	t.check(step+": pods that keep their address", fmt.Sprintf("%d of %d", same, len(addresses)), same == len(addresses))
	restarted, err := t.restarts(ctx)
	if err != nil {
		return err
	}
	t.check(step+": containers of pods that restarted", restarted-restarts, restarted == restarts)
	if err := t.noPingLost(ctx, step+": pings lost so far"); err != nil {
		return err
	}
	return t.checkOperator(ctx)
}

// growsAndReturns checks that the new operator adds blocks to a node that the old one served,
// and reclaims them together with the old one's.
func (t *trial) growsAndReturns(ctx context.Context, first int) error {
	before, err := t.burstBlocks(ctx)
	if err != nil {
		return err
	}
	if _, err := t.shell(ctx, quicken); err != nil {
		return err
	}
	if err := t.scale(ctx, "burst", newPods); err != nil {
		return err
	}
	after, err := t.burstBlocks(ctx)
	if err != nil {
		return err
	}
	t.check("blocks of "+burstNode+" at first, by the old operator, by the new one", fmt.Sprintf("%d, %d, %d", first, before, after), first < before && before < after)
	if err := t.endBurst(ctx, first); err != nil {
		return err
	}
	out, err := t.shell(ctx, "kubectl cilium-pool check")
	t.check("kubectl cilium-pool check finds nothing", err == nil, err == nil)
	if err != nil {
		t.say("%s", out)
	}
	return nil
}
