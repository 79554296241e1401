//go:build linux

package main

import (
	"context"
	"strings"
)

// Values of Cilium's chart and of ours that most setups begin with.
const (
	ciliumValues   = "examples/cilium-values.yaml"
	operatorValues = "examples/values.yaml"
	// poolLabel is what a pool of examples/pools.yaml selects nodes by.
	poolLabel = "node-restriction.kubernetes.io/zone=beijing"
)

// setup is what is installed in a cluster that a scenario has for itself. Paths
// are of the checkout.
type setup struct {
	name string
	// cilium are files of values for Cilium's chart, on top of ciliumValues.
	cilium []string
	// peer: Cilium allocates by itself, without our operator.
	peer bool
	// operator are files of values for our chart, on top of operatorValues.
	operator []string
	// pools are manifests to apply.
	pools []string
	// labels of all nodes, by which pools select them.
	labels string
	// dualStack: nodes and Services have IPv6 addresses too.
	dualStack bool
	// oneBlock: a node keeps one block.
	oneBlock bool
}

// commands install the setup, in the order and with the words of docs/install.md.
func (s setup) commands(ciliumChart string) []string {
	lines := []string{"helm install cilium " + ciliumChart + " -n kube-system" + valueFlags(ciliumValues, s.cilium) + forcedCilium}
	if s.peer {
		return lines
	}
	lines = append(lines, operatorInstall+"charts/cilium-pool-operator -n kube-system"+valueFlags(operatorValues, s.operator)+" --wait")
	for _, file := range s.pools {
		lines = append(lines, "kubectl apply -f "+file)
	}
	if s.labels != "" {
		lines = append(lines, labelNodes+s.labels)
	}
	return lines
}

func valueFlags(base string, more []string) string {
	return " -f " + strings.Join(append([]string{base}, more...), " -f ")
}

// startWith starts a new cluster and installs a setup, DNS and probes.
func (b *bed) startWith(ctx context.Context, s setup) error {
	b.say("--- a cluster with %s", s.name)
	b.cluster.DualStack = s.dualStack
	if err := b.start(ctx); err != nil {
		return err
	}
	return b.installSetup(ctx, s)
}

// installSetup installs a setup, DNS and probes.
func (b *bed) installSetup(ctx context.Context, s setup) error {
	for _, line := range s.commands(b.options.cilium) {
		b.say("$ %s", line)
		if _, err := b.shell(ctx, line); err != nil {
			return err
		}
	}
	if err := b.awaitAgents(ctx, !s.peer); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{b.installDNS, b.installProbes} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
