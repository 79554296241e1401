//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// ciliumScenario upgrades Cilium by its chart while the operator stays unchanged. Lost pings
// are caused by Cilium itself, as in a restart of its agents without an upgrade, which comes
// first; the table reports both. The scenario judges only the operator: nodes keep their
// blocks, and it does not restart.
func ciliumScenario(ctx context.Context, t *trial) error {
	if err := t.importAll(ctx, t.options.oldImage); err != nil {
		return err
	}
	chart := func(folder string) string {
		return folder + " -n kube-system -f examples/cilium-values.yaml" + forcedCilium
	}
	for _, line := range []string{
		"helm install cilium " + chart(t.options.oldCilium),
		"helm install cilium-pool-operator " + operatorChart + poolsInValues,
	} {
		if _, err := t.shell(ctx, line); err != nil {
			return err
		}
	}
	if err := t.documented(ctx, labelNodes); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{t.awaitInstalled, t.installProbes} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := t.noteCilium(ctx, "Cilium's agents, before"); err != nil {
		return err
	}
	before, err := t.blockNames(ctx)
	if err != nil {
		return err
	}
	for _, step := range []struct{ what, line string }{
		{"rollout restart of the agents", "kubectl -n kube-system rollout restart daemonset/cilium"},
		{"upgrade of Cilium", "helm upgrade cilium " + chart(t.options.cilium) + " --set upgradeCompatibility=1.19"},
	} {
		if err := t.agentsBegin(ctx, step.what, step.line); err != nil {
			return err
		}
	}
	if err := t.noteCilium(ctx, "Cilium's agents, after"); err != nil {
		return err
	}
	after, err := t.blockNames(ctx)
	if err != nil {
		return err
	}
	t.check("blocks are the same as before", before == after, before == after)
	served, asked, err := t.servedAt(ctx, "probe-host", probeServiceIP)
	if err != nil {
		return err
	}
	t.check("a Service answers each node", fmt.Sprintf("%d of %d", served, asked), served == asked)
	if err := t.growsAfter(ctx); err != nil {
		return err
	}
	return t.checkOperator(ctx)
}

// growsAfter starts more pods on one node than its block has addresses: the new agents report,
// and use the addresses that they are assigned.
func (t *trial) growsAfter(ctx context.Context) error {
	before, err := t.burstBlocks(ctx)
	if err != nil {
		return err
	}
	if err := t.cluster.Apply(ctx, webManifest); err != nil {
		return err
	}
	if err := t.scale(ctx, "burst", burstPods); err != nil {
		return err
	}
	after, err := t.burstBlocks(ctx)
	t.check("blocks of "+burstNode+" before and with these pods", fmt.Sprintf("%d, %d", before, after), after > before)
	return err
}

// agentsBegin runs a command that restarts all agents, while new pods ping each other.
func (t *trial) agentsBegin(ctx context.Context, what, line string) error {
	for _, args := range [][]string{{"restart", "daemonset/probe"}, {"status", "daemonset/probe", "--timeout=" + probeTimeout.String()}} {
		if _, err := t.cluster.Kubectl(ctx, append([]string{"--namespace=default", "rollout"}, args...)...); err != nil {
			return err
		}
	}
	if err := t.startPings(ctx); err != nil {
		return err
	}
	began := time.Now()
	_, err := t.shell(ctx, line)
	t.check(what+": succeeds", err == nil, err == nil)
	if err != nil {
		return err
	}
	for _, what := range []string{"daemonset/cilium", "deployment/cilium-operator"} {
		if err := t.rollout(ctx, "kube-system", what, agentsTimeout); err != nil {
			return err
		}
	}
	t.check(what+": all Ready, after", seconds(began), true)
	lost, err := t.pings(ctx)
	if err != nil {
		return err
	}
	t.note(what+": pings lost", lost)
	return nil
}

// noteCilium adds the agents' image to the table.
func (t *trial) noteCilium(ctx context.Context, what string) error {
	ds, err := query[appsv1.DaemonSet](ctx, t.bed, "daemonset", "cilium", "--namespace=kube-system")
	for _, c := range ds.Spec.Template.Spec.Containers {
		if c.Name == "cilium-agent" {
			image, _, _ := strings.Cut(c.Image, "@")
			t.note(what, image)
		}
	}
	return err
}

// importAll imports an image into all nodes.
func (b *bed) importAll(ctx context.Context, image string) error {
	var wg sync.WaitGroup
	failed := make([]error, b.options.nodes)
	for i := range failed {
		wg.Go(func() { failed[i] = b.cluster.Import(ctx, i+1, image) })
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}
