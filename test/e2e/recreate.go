//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

const recreatePods = 40 // two blocks

// recreate deletes the CiliumNode of a node with running pods: the operator must
// restore it with the same blocks, pods keep running, new pods get addresses, and the
// agent restores all of them when it restarts.
func recreate(ctx context.Context, e *env) error {
	n, probe, pods, err := e.loaded(ctx, recreatePods, soon()...)
	if err != nil {
		return err
	}
	before, err := e.CiliumNode(ctx, n.Name)
	if err != nil {
		return err
	}
	flows, err := startPings(probe, pods[:5])
	if err != nil {
		return err
	}
	end, err := e.rules.Exempt(ctx, invariant.Exemption{Rule: 2, Subject: "CiliumNode " + n.Name, Text: "deleted though its Node is there"})
	if err != nil {
		return err
	}
	began := time.Now()
	if err := e.Client.Delete(ctx, before, client.Preconditions{UID: &before.UID}); err != nil {
		return fmt.Errorf("delete the CiliumNode: %w", err)
	}
	err = e.Eventually(ctx, "the CiliumNode is back", func(ctx context.Context) error {
		now, err := e.CiliumNode(ctx, n.Name)
		if err != nil {
			return err
		}
		return sameBlocks(before, now)
	})
	e.check(err == nil, "the same blocks are back", "%.2f s", time.Since(began).Seconds())
	if err := errors.Join(err, end(ctx)); err != nil {
		return err
	}
	after, errs := e.runPods(ctx, n, "after", 10, 4)
	e.checkNone(errs, "failed CNI ADDs of 10 afterwards")
	pods = append(pods, after...)
	e.checkKept(ctx, n, pods, "pods at their address")
	if err := n.RestartAgent(ctx); err != nil {
		return err
	}
	e.checkKept(ctx, n, pods, "pods restored when the agent was killed then")
	e.judgePings(flows, "packets lost through all that")
	return e.judgeRules(ctx)
}

// sameBlocks returns an error if now does not have the same blocks as before.
func sameBlocks(before, now *ciliumv2.CiliumNode) error {
	if now.UID == before.UID {
		return fmt.Errorf("it is still the old one")
	}
	if want, got := podCIDRs(before), podCIDRs(now); !slices.Equal(want, got) {
		return fmt.Errorf("podCIDRs %v, were %v", got, want)
	}
	for ip := range before.Spec.IPAM.Pool {
		if _, ok := now.Spec.IPAM.Pool[ip]; !ok {
			return fmt.Errorf("%s is missing", ip)
		}
	}
	return nil
}
