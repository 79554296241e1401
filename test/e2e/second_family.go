//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

// familyPods are the pods of a node before it has IPv6, and those that start after.
const familyPods = 6

// secondFamily enables IPv6 in a running IPv4 cluster, node by node, disables it, removes it
// from the pool, and enables it again, as docs/operations.md describes, while pods are pinged.
func secondFamily(ctx context.Context, e *env) error {
	e.options.Then, e.options.ThenValues = "crd", []string{dualValues}
	n, probe, err := e.pair(ctx, append(soon(), "--ack-timeout=10s")...)
	if err != nil {
		return err
	}
	s := &secondFamilies{env: e, nodes: []*bed.Node{n, probe.Node()}, probe: probe}
	var errs []error
	if s.old, errs = e.runPods(ctx, n, "old", familyPods, 2); len(errs) > 0 {
		return fmt.Errorf("%d pods failed, the first: %w", len(errs), errs[0])
	}
	if s.flows, err = flowsBetween(probe, s.old[:2], pingEvery); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{s.addRange, s.switchOn, s.useBoth, s.switchOff, s.takeOut, s.switchOnAgain} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	e.judgePings(s.flows, "packets lost by pods that were there before, over all that")
	e.checkRoutes(ctx, n, probe.Node())
	return e.judgeRules(ctx)
}

type secondFamilies struct {
	*env
	nodes []*bed.Node
	probe *bed.Pod
	old   []*bed.Pod // on the first node, IPv4 only
	both  []*bed.Pod
	flows []*bed.Pings
	// left are the IPv6 addresses that agents without IPv6 still name, by node.
	left map[string]string
}

// addRange adds an IPv6 range to the pool while agents have IPv6 disabled.
func (s *secondFamilies) addRange(ctx context.Context) error {
	if err := s.editPool(ctx, "all", addIPv6); err != nil {
		return err
	}
	err := s.Eventually(ctx, "FamilyNotRun is reported", func(ctx context.Context) error {
		missing, err := s.missingEvents(ctx, "FamilyNotRun of PodIPPool all")
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("not yet: %v", missing)
		}
		return err
	})
	s.check(err == nil, "event FamilyNotRun, while agents have IPv6 off", "%t", err == nil)
	more, errs := s.runPods(ctx, s.nodes[0], "more", 2, 1)
	s.checkNone(errs, "ADDs that fail meanwhile")
	s.old = append(s.old, more...)
	return nil
}

func addIPv6(p *v1alpha1.PodIPPool) {
	p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: blockSize6, CIDRs: []v1alpha1.PoolCIDR{{CIDR: poolCIDR6}}}
}

// switchOn restarts one agent after the other with IPv6 enabled.
func (s *secondFamilies) switchOn(ctx context.Context) error {
	if err := s.EditConfig(ctx, s.MovedConfig()); err != nil {
		return err
	}
	for _, n := range s.nodes {
		if err := n.AddIPv6(ctx); err != nil {
			return err
		}
		began := time.Now()
		starts, err := n.RestartAgentUntilHealthy(ctx)
		if err != nil {
			return err
		}
		// The agent exits if its node has no IPv6 address, from which the operator learns that
		// it runs IPv6.
		s.check(starts <= 2, "starts of the agent of "+n.Name+" until it is healthy with IPv6; after", "%d; %.0f s", starts, time.Since(began).Seconds())
	}
	s.checkKept(ctx, s.nodes[0], s.old, "pods restored at their IPv4 address, IPv6 on")
	return nil
}

// useBoth starts pods, which have both families, and pings them in both.
func (s *secondFamilies) useBoth(ctx context.Context) error {
	both, errs := s.runPods(ctx, s.nodes[0], "both", familyPods, 2)
	s.checkNone(errs, "ADDs that fail with IPv6 on")
	s.both = both
	with := 0
	for _, p := range both {
		if len(p.Addresses) == 2 {
			with++
		}
	}
	s.check(with == familyPods, "new pods with an address of each family", "%d of %d", with, familyPods)
	other, err := s.runPod(ctx, s.nodes[1], "probe-both")
	if err != nil {
		return err
	}
	s.both = append(s.both, other)
	flows, err := flowsBetween(other, both[:1], pingEvery)
	if err != nil {
		return err
	}
	if err := pause(ctx, probeTime); err != nil {
		return err
	}
	s.judgePings(flows, "packets lost between pods with both, in both")
	return nil
}

// switchOff deletes the pods with both families, and restarts one agent after the other with
// IPv6 disabled.
func (s *secondFamilies) switchOff(ctx context.Context) error {
	if err := s.deletePods(ctx, s.both); err != nil {
		return err
	}
	if err := s.EditConfig(ctx, s.BeforeConfig()); err != nil {
		return err
	}
	for _, n := range s.nodes {
		if err := n.RestartAgent(ctx); err != nil {
			return err
		}
	}
	more, errs := s.runPods(ctx, s.nodes[0], "last", 2, 1)
	s.checkNone(errs, "ADDs that fail with IPv6 off again")
	s.checkKept(ctx, s.nodes[0], append(s.old, more...), "pods at their IPv4 address, IPv6 off again")
	return nil
}
