//go:build linux

package main

import (
	"context"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

const dualPods = 60 // reach into the third block of each family

// modesMultiPoolDual runs a node in multi-pool mode whose pods have an address in each family:
// blocks of both are added in a surge, survive the agent's restart, and are returned.
func modesMultiPoolDual(ctx context.Context, e *env) error {
	if err := e.startBeside(ctx, multiPoolMode, whole.InPools(), dualValues); err != nil {
		return err
	}
	if err := e.operate(multiPoolMode, wholeCooldown); err != nil {
		return err
	}
	l := &wholeLife{env: e, ours: true}
	return inTurn(ctx, l.beginProbe, l.surgeDual, l.restart, l.giveBackMost, e.judgeWhole)
}

// surgeDual runs the surge, and then checks the blocks of each family.
func (l *wholeLife) surgeDual(ctx context.Context) (err error) {
	if l.node, err = l.surgeWhole(ctx, "dual", dualPods, 4); err != nil {
		return err
	}
	both := 0
	for _, p := range l.keep {
		if len(p.Addresses) == 2 && p.Addresses[0].Is4() && p.Addresses[1].Is6() {
			both++
		}
	}
	ipv4, ipv6, err := l.blocksByFamily(ctx)
	l.check(both == dualPods && ipv4 > 1 && ipv6 > 1, "pods with an address of each family; blocks of each", "%d of %d; %d, %d", both, dualPods, ipv4, ipv6)
	return err
}

// blocksByFamily counts the blocks assigned to the node.
func (l *wholeLife) blocksByFamily(ctx context.Context) (ipv4, ipv6 int, err error) {
	cn, err := l.CiliumNode(ctx, l.node.Name)
	for _, cidr := range whole.AssignedTo(cn) {
		if cidr.Addr().Is4() {
			ipv4++
		} else {
			ipv6++
		}
	}
	return ipv4, ipv6, err
}

func (l *wholeLife) restart(ctx context.Context) error {
	return l.restartAgent(ctx, l.node, l.keep, l.probe, l.keep[:pinged])
}

// giveBackMost keeps only the pods of the first block.
func (l *wholeLife) giveBackMost(ctx context.Context) error {
	if err := l.giveBack(ctx, l.keep[:pinged], l.keep[pinged:]); err != nil {
		return err
	}
	ipv4, ipv6, err := l.blocksByFamily(ctx)
	l.check(ipv4 == 1 && ipv6 == 1, "blocks of each family after that", "%d, %d", ipv4, ipv6)
	return err
}

// modesKubernetesDual runs nodes in kubernetes mode with a block of each family,
// one of which joined with an IPv4 podCIDR only.
func modesKubernetesDual(ctx context.Context, e *env) error {
	e.options.Set = []string{"k8s.requireIPv6PodCIDR=true"} // as requested by cilium-values-kubernetes.yaml
	if err := e.startBeside(ctx, kubernetesMode, whole.OnNode(), dualValues); err != nil {
		return err
	}
	k := &kubeNodes{env: e}
	return inTurn(ctx, k.joinAlone, k.join, k.restart, k.adoptGrid, k.again, e.judgeWhole)
}
