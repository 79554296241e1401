//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// readyTimeout is the time from a node's start until its pods run: it compiles its agent's
// datapath.
const readyTimeout = 4 * time.Minute

// joinScenario makes a node join, get a block and run pods; the node is drained; it loses
// power and gets it back; it is deleted and joins again under the same name.
func joinScenario(ctx context.Context, t *trial) error {
	number := t.options.nodes + 1
	name := kube.NodeName(number)
	for _, step := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"a node joins", func(ctx context.Context) error { return t.bring(ctx, number) }},
		{"it is drained and uncordoned", func(ctx context.Context) error { return t.drain(ctx, name) }},
		{"its power is cut and comes back", func(ctx context.Context) error {
			if err := t.cluster.StopNode(number); err != nil {
				return err
			}
			return t.bring(ctx, number)
		}},
		{"it is deleted, wiped and joins again", func(ctx context.Context) error {
			if err := t.cluster.WipeNode(number); err != nil {
				return err
			}
			if _, err := t.cluster.Kubectl(ctx, "delete", "node", name); err != nil {
				return err
			}
			return t.bring(ctx, number)
		}},
	} {
		began := time.Now()
		err := step.run(ctx)
		t.check(step.what+", its pods run after", seconds(began), err == nil)
		if err != nil {
			return err
		}
	}
	served, asked, err := t.servedFrom(ctx)
	if err != nil {
		return err
	}
	t.check("the Service answers from all nodes", fmt.Sprintf("%d of %d", served, asked), served == asked)
	return t.remove(ctx, number)
}

// bring starts a node and waits for the probe on it.
func (t *trial) bring(ctx context.Context, number int) error {
	since := time.Now()
	if err := t.cluster.StartNode(ctx, number); err != nil {
		return err
	}
	if err := t.cluster.Import(ctx, number, t.options.operator); err != nil {
		return err
	}
	err := kube.Await(ctx, time.Minute, "the node is registered", func(ctx context.Context) (bool, string) {
		out, err := t.cluster.Kubectl(ctx, "get", "node", kube.NodeName(number))
		return err == nil, fmt.Sprint(out, err)
	})
	if err != nil {
		return err
	}
	if err := t.documented(ctx, labelNodes); err != nil {
		return err
	}
	if err := t.awaitKubelet(ctx, kube.NodeName(number)); err != nil {
		return err
	}
	return t.awaitProbe(ctx, kube.NodeName(number), since)
}

// awaitProbe waits until the probe on a node is Ready and became so after since: the API
// server's status of a node without power is outdated.
func (t *trial) awaitProbe(ctx context.Context, node string, since time.Time) error {
	return kube.Await(ctx, readyTimeout, "the probe on "+node+" is Ready", func(ctx context.Context) (bool, string) {
		pods, err := query[corev1.PodList](ctx, t.bed, "pods", "--namespace=default", "--selector=app=probe", "--field-selector=spec.nodeName="+node)
		for _, pod := range pods.Items {
			for _, c := range pod.Status.ContainerStatuses {
				if c.Ready && c.State.Running != nil && c.State.Running.StartedAt.After(since.Add(-time.Second)) {
					return true, ""
				}
			}
		}
		return false, fmt.Sprintf("%d pods, %v", len(pods.Items), err)
	})
}

func (t *trial) drain(ctx context.Context, node string) error {
	if _, err := t.cluster.Kubectl(ctx, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=2m"); err != nil {
		return err
	}
	_, err := t.cluster.Kubectl(ctx, "uncordon", node)
	return err
}

// remove removes a node permanently, and waits until its pods are gone.
func (t *trial) remove(ctx context.Context, number int) error {
	name := kube.NodeName(number)
	if err := t.cluster.WipeNode(number); err != nil {
		return err
	}
	if _, err := t.cluster.Kubectl(ctx, "delete", "node", name); err != nil {
		return err
	}
	return kube.Await(ctx, readyTimeout, "no pods of "+name+" are left", func(ctx context.Context) (bool, string) {
		out, err := t.cluster.Kubectl(ctx, "get", "pods", "--all-namespaces", "--output=name", "--field-selector=spec.nodeName="+name)
		return err == nil && out == "", fmt.Sprint(out, err)
	})
}

// outageScenario stops the control plane for a minute, during which pods and their connections
// continue.
func outageScenario(ctx context.Context, t *trial) error {
	if err := t.startPings(ctx); err != nil {
		return err
	}
	if err := t.cluster.Apply(ctx, webManifest); err != nil {
		return err
	}
	if _, err := t.cluster.Kubectl(ctx, "scale", "deployment", "web", "--replicas=30"); err != nil {
		return err
	}
	if err := t.cluster.Outage(); err != nil {
		return err
	}
	const away = time.Minute
	if err := harness.Sleep(ctx, away); err != nil {
		return err
	}
	began := time.Now()
	if err := t.cluster.EndOutage(ctx); err != nil {
		return err
	}
	if err := t.awaitPods(ctx, "web", 30); err != nil {
		return err
	}
	t.check("30 pods asked for before an outage of a minute run after its end, after", seconds(began), true)
	if err := t.scale(ctx, "web", 3); err != nil {
		return err
	}
	return t.noPingLost(ctx, "pings lost")
}

// agentsScenario restarts Cilium's agents, and kills the operator's leader during a burst.
// Pings lost to Cilium's own restart are reported, but do not fail the run.
func agentsScenario(ctx context.Context, t *trial) error {
	if err := t.startPings(ctx); err != nil {
		return err
	}
	began := time.Now()
	if _, err := t.cluster.Kubectl(ctx, "rollout", "restart", "daemonset/cilium", "--namespace=kube-system"); err != nil {
		return err
	}
	if err := t.rollout(ctx, "kube-system", "daemonset/cilium", agentsTimeout); err != nil {
		return err
	}
	t.check("rollout restart of Cilium's agents, all Ready after", seconds(began), true)
	lost, err := t.pings(ctx)
	if err != nil {
		return err
	}
	t.note("pings lost while agents restart: Cilium's own", lost)
	if err := t.leaderKilled(ctx); err != nil {
		return err
	}
	return t.shortEverywhere(ctx)
}

// shortEverywhere checks that a shortage ends after no operator was left to end it: all Nodes
// have the taint of the documented values as the operator, and cilium-operator, start again.
func (t *trial) shortEverywhere(ctx context.Context) error {
	const taint, operators = "cilium-pool.io/no-addresses", "deployment/cilium-pool-operator"
	began := time.Now()
	for _, line := range []string{
		"kubectl -n kube-system scale " + operators + " --replicas=0",
		"kubectl -n kube-system wait pod -l app.kubernetes.io/name=cilium-pool-operator --for=delete --timeout=2m",
		"kubectl taint nodes --all " + taint + "=:NoSchedule",
		"kubectl -n kube-system delete pod -l name=cilium-operator",
		"kubectl -n kube-system scale " + operators + " --replicas=2",
	} {
		if _, err := t.shell(ctx, line); err != nil {
			return err
		}
	}
	for _, deployment := range []string{operators, "deployment/cilium-operator"} {
		if err := t.rollout(ctx, "kube-system", deployment, podsTimeout); err != nil {
			return err
		}
	}
	err := kube.Await(ctx, podsTimeout, "no Node has the taint "+taint, func(ctx context.Context) (bool, string) {
		out, err := t.cluster.Kubectl(ctx, "get", "nodes", "--output=jsonpath={.items[*].spec.taints[*].key}")
		return err == nil && !strings.Contains(out, taint), fmt.Sprint(out, err)
	})
	t.check("all Nodes with the shortage taint and no operator: all start and remove it, after", seconds(began), err == nil)
	return err
}

func (t *trial) leaderKilled(ctx context.Context) error {
	if err := t.cluster.Apply(ctx, webManifest); err != nil {
		return err
	}
	holder, err := t.cluster.Kubectl(ctx, "get", "lease", "cilium-pool-operator", "--namespace=kube-system", "--output=jsonpath={.spec.holderIdentity}")
	if err != nil {
		return err
	}
	pods, err := query[corev1.PodList](ctx, t.bed, "pods", "--namespace=kube-system", "--selector=app.kubernetes.io/name=cilium-pool-operator")
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := t.cluster.Kubectl(ctx, "scale", "deployment", "burst", fmt.Sprintf("--replicas=%d", burstPods)); err != nil {
		return err
	}
	killed := 0
	for _, pod := range pods.Items {
		if strings.HasPrefix(holder, pod.Name) || strings.HasPrefix(holder, pod.Spec.NodeName+"_") {
			killed++
			if err := t.cluster.KillProgram(pod.Spec.NodeName, "cilium-pool-operator"); err != nil {
				return err
			}
		}
	}
	t.check("leaders found and killed", killed, killed == 1)
	if err := t.awaitPods(ctx, "burst", burstPods); err != nil {
		return err
	}
	t.check(fmt.Sprintf("%d pods on one node, whose start met the leader's end, Ready after", burstPods), seconds(began), true)
	return t.scale(ctx, "burst", 0)
}

// uninstallScenario uninstalls the operator; pods continue, and after it is installed again it
// resumes from the existing blocks.
func uninstallScenario(ctx context.Context, t *trial) error {
	if err := t.startPings(ctx); err != nil {
		return err
	}
	before, err := t.blockNames(ctx)
	if err != nil {
		return err
	}
	addresses, err := t.podAddresses(ctx)
	if err != nil {
		return err
	}
	out, err := t.shell(ctx, "helm uninstall cilium-pool-operator -n kube-system --wait")
	t.check("helm uninstall succeeds", err == nil, err == nil)
	if err != nil {
		return err
	}
	says := strings.Contains(out, "kept") && strings.Contains(out, "podippools.cilium-pool.io")
	t.check("helm uninstall says that the CRDs stay", says, says)
	during, err := t.podAddresses(ctx)
	if err != nil {
		return err
	}
	t.check("pods that keep their address without the operator", len(during), len(during) > 0 && maps.Equal(addresses, during))
	began := time.Now()
	if err := t.documented(ctx, operatorInstall); err != nil {
		return err
	}
	t.check("installed again, after", seconds(began), true)
	after, err := t.blockNames(ctx)
	if err != nil {
		return err
	}
	t.check("blocks are the same as before", before == after, before == after)
	later, err := t.podAddresses(ctx)
	if err != nil {
		return err
	}
	t.check("pods that keep their address once it is back", len(later), maps.Equal(addresses, later))
	return t.noPingLost(ctx, "pings lost")
}

func (b *bed) blockNames(ctx context.Context) (string, error) {
	return b.cluster.Kubectl(ctx, "get", "podipblocks", "--output=name")
}
