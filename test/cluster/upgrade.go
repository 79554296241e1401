//go:build linux

package main

import (
	"context"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

const upgradeOperator = "helm upgrade cilium-pool-operator charts/cilium-pool-operator -n kube-system --reuse-values --wait --timeout=3m "

// upgradeScenario: the operator is upgraded and rolled back, and a kubelet
// restarts, while pods ping each other. None of that may lose a packet: the
// operator is not on their way.
func upgradeScenario(ctx context.Context, t *trial) error {
	restarts, err := t.restarts(ctx)
	if err != nil {
		return err
	}
	if err := t.startPings(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"helm upgrade with changed values", t.line(upgradeOperator + "--set log.level=debug,nodeWorkers=16")},
		{"helm rollback", t.line("helm rollback cilium-pool-operator -n kube-system --wait --timeout=3m")},
		{"kubelet of n2 restarts", t.restartKubelet},
	} {
		began := time.Now()
		err := step.run(ctx)
		t.check(step.what+", took", seconds(began), err == nil)
		if err != nil {
			return err
		}
		lost, err := t.pings(ctx)
		if err != nil {
			return err
		}
		t.check(step.what+": pings lost so far", lost, lost.Lost == 0 && lost.Sent > 0)
	}
	now, err := t.restarts(ctx)
	if err != nil {
		return err
	}
	t.check("containers of pods that restarted", now-restarts, now == restarts)
	return nil
}

func (t *trial) line(line string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := t.shell(ctx, line)
		return err
	}
}

// restartKubelet waits until the node says again that it is Ready.
func (t *trial) restartKubelet(ctx context.Context) error {
	const number = 2
	heartbeat := []string{"get", "lease", kube.NodeName(number), "--namespace=kube-node-lease", "--output=jsonpath={.spec.renewTime}"}
	if err := t.cluster.KillProgram(kube.NodeName(number), "kubelet"); err != nil {
		return err
	}
	before, err := t.cluster.Kubectl(ctx, heartbeat...)
	if err != nil {
		return err
	}
	err = kube.Await(ctx, time.Minute, "kubelet of n2 reports again", func(ctx context.Context) (bool, string) {
		now, err := t.cluster.Kubectl(ctx, heartbeat...)
		return err == nil && now != before, now
	})
	if err != nil {
		return err
	}
	_, err = t.cluster.Kubectl(ctx, "wait", "node", kube.NodeName(number), "--for=condition=Ready", "--timeout=1m")
	return err
}
