//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

// The beginnings of commands on the page.
const (
	operatorInstall = "helm install cilium-pool-operator "
	labelNodes      = "kubectl label nodes --all "
)

// installScenario checks that the documented commands make a cluster with working pods,
// Services and names.
func installScenario(ctx context.Context, t *trial) error {
	commands, err := t.installCommands()
	if err != nil {
		return err
	}
	began := time.Now()
	for _, line := range commands {
		t.say("$ %s", line)
		_, err := t.shell(ctx, line)
		t.check(shortened(line)+": succeeds, after", seconds(began), err == nil)
		if err != nil {
			return err
		}
	}
	if err := t.awaitInstalled(ctx); err != nil {
		return err
	}
	t.check("all agents and nodes Ready, after", seconds(began), true)
	if err := t.installDNS(ctx); err != nil {
		return err
	}
	t.check("CoreDNS Ready, after", seconds(began), true)
	if err := t.installProbes(ctx); err != nil {
		return err
	}
	served, asked, err := t.servedFrom(ctx)
	if err != nil {
		return err
	}
	t.check("a Service answers each node and a pod on each", fmt.Sprintf("%d of %d", served, asked), served == asked)
	if err := t.checkOperator(ctx); err != nil {
		return err
	}
	return t.upgradeUnchanged(ctx, commands)
}

// shortened returns a command line without paths and values of flags.
func shortened(line string) string {
	var kept []string
	for _, field := range strings.Fields(line) {
		if strings.HasPrefix(field, "-") && len(kept) > 2 {
			break
		}
		kept = append(kept, filepath.Base(field))
	}
	return strings.Join(kept[:min(4, len(kept))], " ")
}

// checkOperator checks that the operator has not restarted and lacked no right.
func (t *trial) checkOperator(ctx context.Context) error {
	pods, err := query[corev1.PodList](ctx, t.bed, "pods", "--namespace=kube-system", "--selector=app.kubernetes.io/name=cilium-pool-operator")
	if err != nil {
		return err
	}
	restarts, refused := 0, 0
	for _, pod := range pods.Items {
		log, err := t.cluster.Kubectl(ctx, "logs", "--namespace=kube-system", pod.Name)
		if err != nil {
			return err
		}
		refused += strings.Count(log, " is forbidden: ")
		for _, c := range pod.Status.ContainerStatuses {
			restarts += int(c.RestartCount)
		}
	}
	t.check("restarts of the operator's containers", restarts, restarts == 0)
	t.check("requests of the operator refused for want of rights", refused, refused == 0)
	return nil
}

// upgradeUnchanged runs helm upgrade with the values of the installation: it
// succeeds, and no pod is replaced.
func (t *trial) upgradeUnchanged(ctx context.Context, commands []string) error {
	for _, line := range commands {
		install, arguments, found := strings.Cut(line, "helm install ")
		if !found || install != "" {
			continue
		}
		before, err := t.podUIDs(ctx)
		if err != nil {
			return err
		}
		_, err = t.shell(ctx, "helm upgrade "+arguments+" --wait --timeout=3m")
		if err != nil {
			t.say("%v", err)
		}
		after, errAfter := t.podUIDs(ctx)
		if errAfter != nil {
			return errAfter
		}
		release := strings.Fields(arguments)[0]
		t.check("helm upgrade "+release+", nothing changed: succeeds", err == nil, err == nil)
		t.check("helm upgrade "+release+", nothing changed: no pod is replaced", before == after, before == after)
	}
	return nil
}

// podUIDs returns the pods of kube-system that belong to Helm's releases, with their UIDs.
func (b *bed) podUIDs(ctx context.Context) (string, error) {
	return b.cluster.Kubectl(ctx, "get", "pods", "--namespace=kube-system", "--sort-by=.metadata.uid", "--output=jsonpath={.items[*].metadata.uid}")
}

// awaitPods waits until a Deployment has exactly that many replicas, all Ready.
func (b *bed) awaitPods(ctx context.Context, deployment string, want int) error {
	what := fmt.Sprintf("%s has %d replicas, all Ready", deployment, want)
	return kube.Await(ctx, podsTimeout, what, func(ctx context.Context) (bool, string) {
		d, err := query[appsv1.Deployment](ctx, b, "deployment", deployment, "--namespace=default")
		s := d.Status
		settled := s.ObservedGeneration == d.Generation && int(s.Replicas) == want && int(s.ReadyReplicas) == want
		return err == nil && settled, fmt.Sprintf("%d replicas, %d Ready (%v)", s.Replicas, s.ReadyReplicas, err)
	})
}
