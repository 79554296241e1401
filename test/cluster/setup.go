//go:build linux

package main

import (
	"context"
	"strings"
)

// Values of Cilium's chart and of ours that most setups start with.
const (
	ciliumValues   = "examples/cilium-values.yaml"
	operatorValues = "examples/values.yaml"
	// poolLabel is the label of the nodes of a pool of examples/pools.yaml.
	poolLabel = "node-restriction.kubernetes.io/zone=beijing"
)

// setup describes the installation of a cluster that only one scenario uses. Paths are
// relative to the checkout.
type setup struct {
	name string
	// cilium are values files for Cilium's chart, on top of ciliumValues.
	cilium []string
	// peer lets Cilium allocate addresses itself, without our operator.
	peer bool
	// operator are values files for our chart, on top of operatorValues.
	operator []string
	// pools are manifests to apply.
	pools []string
	// labels are set on all nodes, for pools to select them.
	labels string
	// dualStack gives nodes and Services IPv6 addresses too.
	dualStack bool
	// oneBlock means that a node keeps one block.
	oneBlock bool
}

// commands returns the commands that install the setup, in the order and with the words of
// docs/install.md.
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
