//go:build linux

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

//go:embed manifests/deny.yaml
var denyManifest string

//go:embed manifests/allow.yaml
var allowManifest string

const (
	// policyTimeout is the time for agents to enforce a policy.
	policyTimeout = time.Minute
	metricsPort   = "9870"
	setFirewall   = upgradeOperator + "--set hostFirewall.enabled=true"
	allowOutside  = " --set hostFirewall.allowedCIDRs={" + kube.Outside + "/32}"
)

// policiesScenario checks that NetworkPolicies hold for addresses of all of a node's blocks,
// and that the chart's host firewall policy protects the operator's ports from others.
func policiesScenario(ctx context.Context, t *trial) error {
	s := crdSetup("policies and the host firewall")
	s.cilium = []string{"test/cluster/values/host-firewall.yaml"}
	if err := t.startWith(ctx, s); err != nil {
		return err
	}
	if err := t.hostFirewall(ctx); err != nil {
		return err
	}
	if err := t.works(ctx, s); err != nil {
		return err
	}
	if err := t.networkPolicies(ctx); err != nil {
		return err
	}
	return t.checkOperator(ctx)
}

func (t *trial) networkPolicies(ctx context.Context) error {
	for _, step := range []struct {
		what, manifest string
		all            bool
	}{
		{"a policy that denies: addresses that other nodes' pods still reach", denyManifest, false},
		{"and one that allows: addresses that they reach", allowManifest, true},
	} {
		if err := t.cluster.Apply(ctx, step.manifest); err != nil {
			return err
		}
		var reached, asked int
		err := kube.Await(ctx, policyTimeout, step.what, func(ctx context.Context) (bool, string) {
			var err error
			reached, asked, err = t.reach(ctx, "crowd", false)
			return err == nil && asked > 0 && (step.all && reached == asked || !step.all && reached == 0), fmt.Sprintf("%d of %d, %v", reached, asked, err)
		})
		t.check(step.what, fmt.Sprintf("%d of %d", reached, asked), err == nil)
		if err != nil {
			return err
		}
	}
	reached, asked, err := t.reachFromHosts(ctx)
	t.check("others, whom no policy allows, reach", fmt.Sprintf("%d of %d", reached, asked), reached == 0 && asked > 0)
	return err
}

// reachFromHosts requests from probes in the host network of other nodes, which the allowing
// policy does not include.
func (t *trial) reachFromHosts(ctx context.Context) (reached, asked int, err error) {
	from, err := t.probes(ctx, "probe-host")
	if err != nil {
		return 0, 0, err
	}
	targets, err := t.onePerBlock(ctx, "crowd")
	if err != nil {
		return 0, 0, err
	}
	for _, probe := range from {
		if probe.Spec.NodeName == burstNode {
			continue // A pod's own node always reaches it, as kubelet must.
		}
		for _, target := range targets {
			asked++
			if t.reaches(ctx, probe.Name, target.address, false) {
				reached++
			}
		}
	}
	return reached, asked, nil
}

// hostFirewall requests the metrics of a replica's host from outside the cluster and from
// another node.
func (t *trial) hostFirewall(ctx context.Context) error {
	host, other, err := t.operatorHost(ctx)
	if err != nil {
		return err
	}
	url := "http://" + host.Status.HostIP + ":" + metricsPort + "/metrics"
	err = t.cluster.AskOutside(ctx, url)
	t.check("without the policy the port of metrics answers from outside", err == nil, err == nil)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what, line string
		reached    bool
	}{
		{"with the policy it answers from outside no more", setFirewall, false},
		{"with the address among allowedCIDRs it does", setFirewall + allowOutside, true},
		{"with an empty list by --set-json it does not", setFirewall + " --set-json hostFirewall.allowedCIDRs=[]", false},
		{"with the address again it does", setFirewall + allowOutside, true},
		// According to docs/operations.md, null with --reuse-values leaves the list.
		{"with the chart's list by --reset-then-reuse-values it does not", strings.Replace(setFirewall, "--reuse-values", "--reset-then-reuse-values", 1) + " --set hostFirewall.allowedCIDRs=null", false},
	} {
		if _, err := t.shell(ctx, step.line); err != nil {
			return err
		}
		err := kube.Await(ctx, policyTimeout, step.what, func(ctx context.Context) (bool, string) {
			err := t.cluster.AskOutside(ctx, url)
			return (err == nil) == step.reached, fmt.Sprint(err)
		})
		t.check(step.what, err == nil, err == nil)
		if err != nil {
			return err
		}
	}
	out, err := t.ask(ctx, other, url)
	t.check("from another node it answers", err == nil, err == nil)
	if err != nil {
		return fmt.Errorf("%s asks %s: %s: %w", other, url, out, err)
	}
	// Kubelet's lease, probes and exec still work.
	_, err = t.cluster.Kubectl(ctx, "wait", "node", "--all", "--for=condition=Ready", "--timeout=1m")
	t.check("all nodes stay Ready", err == nil, err == nil)
	served, asked, errServed := t.servedFrom(ctx)
	t.check("the Service answers each node and a pod on each", fmt.Sprintf("%d of %d", served, asked), served == asked)
	return errors.Join(err, errServed)
}

// operatorHost returns a replica, and a probe in the host network of another node.
func (t *trial) operatorHost(ctx context.Context) (replica corev1.Pod, probe string, err error) {
	pods, err := query[corev1.PodList](ctx, t.bed, "pods", "--namespace=kube-system", "--selector=app.kubernetes.io/name=cilium-pool-operator")
	if err != nil || len(pods.Items) == 0 {
		return replica, "", fmt.Errorf("%d replicas of the operator: %w", len(pods.Items), err)
	}
	replica = pods.Items[0]
	probes, err := t.probes(ctx, "probe-host")
	for _, p := range probes {
		if p.Spec.NodeName != replica.Spec.NodeName {
			return replica, p.Name, nil
		}
	}
	return replica, "", fmt.Errorf("no probe on another node than %s: %w", replica.Spec.NodeName, err)
}
