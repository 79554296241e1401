//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

const (
	upgradeOperator = "helm upgrade cilium-pool-operator charts/cilium-pool-operator -n kube-system --reuse-values --wait --timeout=3m "
	// kubeletTimeout is the time from a kubelet's start until it has read its pods.
	kubeletTimeout = time.Minute
)

// upgradeScenario upgrades the operator and rolls it back, and restarts a kubelet, while pods
// ping each other. None of that may lose a packet: the operator is not in the data path.
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
		if err := t.noPingLost(ctx, step.what+": pings lost so far"); err != nil {
			return err
		}
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

// restartKubelet kills a node's kubelet and waits until its successor serves.
func (t *trial) restartKubelet(ctx context.Context) error {
	name := kube.NodeName(2)
	if err := t.cluster.KillProgram(name, "kubelet"); err != nil {
		return err
	}
	if err := t.awaitKubelet(ctx, name); err != nil {
		return err
	}
	_, err := t.cluster.Kubectl(ctx, "wait", "node", name, "--for=condition=Ready", "--timeout=1m")
	return err
}

// awaitKubelet waits until a node's kubelet has read all of its pods from the API
// server. A kubelet that has just started renews its Lease and is Ready before
// that, and until then answers exec with "pod does not exist": it looks pods up
// in the same list that it serves as /pods.
func (b *bed) awaitKubelet(ctx context.Context, node string) error {
	return kube.Await(ctx, kubeletTimeout, "kubelet of "+node+" has read its pods", func(ctx context.Context) (bool, string) {
		bound, err := query[corev1.PodList](ctx, b, "pods", "--all-namespaces", "--field-selector=spec.nodeName="+node)
		if err != nil {
			return false, err.Error()
		}
		text, err := b.cluster.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/pods")
		if err != nil {
			return false, err.Error()
		}
		var read corev1.PodList
		if err := json.Unmarshal([]byte(text), &read); err != nil {
			return false, err.Error()
		}
		missing := notRead(bound.Items, read.Items)
		return len(missing) == 0, fmt.Sprintf("it lacks %s", strings.Join(missing, ", "))
	})
}

// notRead returns the pods bound to a node that its kubelet does not list.
func notRead(bound, read []corev1.Pod) []string {
	var missing []string
	for _, pod := range bound {
		if !slices.ContainsFunc(read, func(r corev1.Pod) bool { return r.UID == pod.UID }) {
			missing = append(missing, pod.Namespace+"/"+pod.Name)
		}
	}
	return missing
}

// kubeletScenario runs one node's kubelet in the minor version before the others', and
// upgrades it under running pods.
func kubeletScenario(ctx context.Context, t *trial) error {
	const number = 2
	if err := t.cluster.SetKubelet(number, t.options.oldKubelet); err != nil {
		return err
	}
	current := filepath.Join(t.options.binDir, "kubelet")
	defer func() { _ = t.cluster.SetKubelet(number, current) }()
	for _, step := range []func(context.Context) error{t.start, t.installAll, t.startPings} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	addresses, err := t.podAddresses(ctx)
	if err != nil {
		return err
	}
	before, err := t.kubeletVersion(ctx, number)
	if err != nil {
		return err
	}
	if err := t.cluster.SetKubelet(number, current); err != nil {
		return err
	}
	began := time.Now()
	if err := t.restartKubelet(ctx); err != nil {
		return err
	}
	after := before
	err = kube.Await(ctx, kubeletTimeout, "the Node has another version of kubelet", func(ctx context.Context) (bool, string) {
		after, err = t.kubeletVersion(ctx, number)
		return err == nil && after != before, after
	})
	t.check("kubelet of n2, from "+before+" to "+after+", took", seconds(began), err == nil)
	if err != nil {
		return err
	}
	if err := t.awaitInstalled(ctx); err != nil {
		return err
	}
	later, err := t.podAddresses(ctx)
	if err != nil {
		return err
	}
	t.check("pods that keep their address", len(later), maps.Equal(addresses, later))
	return t.noPingLost(ctx, "pings lost")
}

func (b *bed) kubeletVersion(ctx context.Context, number int) (string, error) {
	return b.cluster.Kubectl(ctx, "get", "node", kube.NodeName(number), "--output=jsonpath={.status.nodeInfo.kubeletVersion}")
}
