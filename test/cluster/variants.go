//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// The parts of installation variants, each with the values of examples/.
const (
	operatorChart  = "charts/cilium-pool-operator -n kube-system -f examples/values.yaml"
	poolsInValues  = " -f examples/values-pools.yaml"
	poolsByKubectl = "kubectl apply -f examples/pools.yaml"
	// helmTemplate names the version, as it has no cluster to query.
	helmTemplate = "helm template --kube-version 1.36 "
	waitForIt    = " --wait --timeout=4m"
)

// variant is one way to install Cilium and the operator: commands that must succeed in this
// order. Nodes have their labels before.
type variant struct {
	name string
	// lines are shell commands; CILIUM stands for the arguments that install Cilium, DIR for
	// the cluster's folder.
	lines []string
	// again must succeed once everything is Ready, and replaces no pod.
	again []string
}

func variants() []variant {
	operator := func(helm string) string { return helm + " install cilium-pool-operator " + operatorChart }
	upgrade := func(helm string) string { return helm + " upgrade cilium-pool-operator " + operatorChart + waitForIt }
	const (
		cilium3, cilium4 = "helm3 install cilium CILIUM", "helm install cilium CILIUM"
		operatorStatic   = helmTemplate + "cilium-pool-operator " + operatorChart
		ciliumStatic     = helmTemplate + "cilium CILIUM"
		manifests        = "DIR/manifests.yaml"
	)
	return []variant{
		{
			name:  "helm4-operator-first-wait",
			lines: []string{operator("helm") + waitForIt, poolsByKubectl, cilium4 + waitForIt},
			again: []string{upgrade("helm")},
		}, {
			name:  "helm4-operator-first-values",
			lines: []string{operator("helm") + poolsInValues, cilium4},
			again: []string{upgrade("helm") + poolsInValues},
		}, {
			name:  "helm4-cilium-first-wait-values",
			lines: []string{cilium4, operator("helm") + poolsInValues + waitForIt},
			again: []string{upgrade("helm") + poolsInValues, upgrade("helm") + poolsInValues + " --set pools.beijing.priority=5"},
		}, {
			name:  "helm3-cilium-first-values",
			lines: []string{cilium3, operator("helm3") + poolsInValues},
			again: []string{upgrade("helm3") + poolsInValues, upgrade("helm3") + poolsInValues + " --set pools.beijing.priority=5"},
		}, {
			name:  "helm3-operator-first-wait",
			lines: []string{operator("helm3") + waitForIt, poolsByKubectl, cilium3 + waitForIt},
			again: []string{upgrade("helm3")},
		}, {
			name:  "helm3-cilium-first",
			lines: []string{cilium3, operator("helm3"), "kubectl wait --for=create crd/podippools.cilium-pool.io --timeout=1m", poolsByKubectl},
			again: []string{upgrade("helm3")},
		}, {
			name:  "static-values",
			lines: []string{ciliumStatic + " | kubectl apply -f -", operatorStatic + poolsInValues + " | kubectl apply -f -"},
			again: []string{operatorStatic + poolsInValues + " | kubectl apply -f -"},
		}, {
			name: "static-server-side",
			lines: []string{
				"{ " + operatorStatic + "; echo ---; " + ciliumStatic + "; } > " + manifests,
				"kubectl apply --server-side -f " + manifests,
				poolsByKubectl + " --server-side",
			},
			again: []string{
				"kubectl apply --server-side -f " + manifests + " -f examples/pools.yaml",
				"kubectl diff --server-side -f " + manifests + " -f examples/pools.yaml",
			},
		},
	}
}

// variantScenarios returns a scenario for each variant, with its own cluster.
func variantScenarios() []scenario {
	var out []scenario
	for _, v := range variants() {
		out = append(out, scenario{name: "variants-" + v.name, fresh: true, run: v.run})
	}
	return out
}

func (v variant) run(ctx context.Context, t *trial) error {
	if err := t.documented(ctx, labelNodes); err != nil {
		return err
	}
	began := time.Now()
	for _, line := range v.lines {
		if err := v.step(ctx, t, line); err != nil {
			return err
		}
	}
	if err := t.awaitInstalled(ctx); err != nil {
		return err
	}
	t.check("all agents and nodes Ready, after", seconds(began), true)
	if err := t.installProbes(ctx); err != nil {
		return err
	}
	served, asked, err := t.servedAt(ctx, "probe-host", probeServiceIP)
	if err != nil {
		return err
	}
	t.check("a Service answers each node", fmt.Sprintf("%d of %d", served, asked), served == asked && asked == t.options.nodes)
	before, err := t.podUIDs(ctx)
	if err != nil {
		return err
	}
	for _, line := range v.again {
		if err := v.step(ctx, t, line); err != nil {
			return err
		}
	}
	after, err := t.podUIDs(ctx)
	if err != nil {
		return err
	}
	t.check("no pod is replaced", before == after, before == after)
	return t.checkOperator(ctx)
}

// step runs a line and adds it to the table.
func (v variant) step(ctx context.Context, t *trial, line string) error {
	_, err := t.shell(ctx, strings.NewReplacer("DIR", t.options.dir,
		"CILIUM", t.options.cilium+" -n kube-system -f examples/cilium-values.yaml"+forcedCilium).Replace(line))
	t.check(line, "exit 0", err == nil)
	return err
}
