//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// vacateKill runs vacate and kills operator and agent with SIGKILL after each step. Any of
// these restarts may be the one that the drain waits for.
func vacateKill(ctx context.Context, e *env) error {
	flags := append(soon(), "--leader-elect-lease-duration=4s")
	v, err := startVacating(ctx, e, 1, flags...)
	if err != nil {
		return err
	}
	for _, s := range []step{
		{"edited", v.edit}, {"retired", v.awaitRetired}, {"restarted", v.moved}, {"answered", v.awaitAnswer},
		{"emptied", v.empty}, {"cooling down", v.awaitCooldown},
	} {
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := v.crash(ctx, s.name, flags); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := v.gone(ctx); err != nil {
		return err
	}
	return v.judge(ctx)
}

// crash kills operator and agent, starts both, and checks that the agent has all pods.
func (v *vacating) crash(ctx context.Context, after string, flags []string) error {
	if err := errors.Join(v.operator.Kill(), v.node.KillAgent(ctx)); err != nil {
		return err
	}
	var err error
	if v.operator, err = v.StartOperator(flags...); err != nil {
		return err
	}
	if err := errors.Join(v.node.StartAgent(ctx), v.node.WaitAgent(ctx)); err != nil {
		return err
	}
	v.checkKept(ctx, v.node, v.pods, after+", and both killed: pods restored at their address")
	return nil
}

// awaitRetired waits until the agent's addresses are retired, or it has others already.
func (v *vacating) awaitRetired(ctx context.Context) error {
	var own int
	err := v.restarts.await(ctx, "the agent's addresses are retired", func(cn *ciliumv2.CiliumNode) bool {
		own = len(v.owned(cn))
		return own == 0 || v.retired(cn)
	})
	v.note("edited, and both killed: then the agent had of its addresses in the block", "%d", own)
	return err
}

// awaitAnswer waits until the agent has answered the mark on its old address.
func (v *vacating) awaitAnswer(ctx context.Context) error {
	return v.restarts.await(ctx, "the agent has answered", func(cn *ciliumv2.CiliumNode) bool {
		return string(cn.Status.IPAM.ReleaseIPs[v.own[0]]) == ipamoption.IPAMReadyForRelease
	})
}

// empty stops the pings to the pods of the CIDR, and deletes the pods.
func (v *vacating) empty(ctx context.Context) error {
	v.judgePings(v.flows, "packets lost by pods of the block until they were deleted")
	return v.drop(ctx)
}

// awaitCooldown waits until the block is no longer the node's.
func (v *vacating) awaitCooldown(ctx context.Context) error {
	return v.Eventually(ctx, "the block cools down", func(ctx context.Context) error {
		block, err := v.block(ctx)
		switch {
		case err != nil:
			return err
		case block == nil:
			return errors.New("it has gone")
		case block.Status.Phase != v1alpha1.PhaseCoolingDown:
			return fmt.Errorf("it is %s: %v", block.Status.Phase, block.Status.Conditions)
		}
		return nil
	})
}
