//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const gonePods = 40 // two blocks

// gone deletes a Node whose machine runs on with its pods but without its agent, waits until
// its CiliumNode is deleted too, and lets a node of the same name join: it must get the same
// blocks, and its agent must restore the pods.
func gone(ctx context.Context, e *env) error {
	n, probe, pods, err := e.loaded(ctx, gonePods, soon()...)
	if err != nil {
		return err
	}
	before, err := e.CiliumNode(ctx, n.Name)
	if err != nil {
		return err
	}
	if err := n.KillAgent(ctx); err != nil {
		return err
	}
	node := &corev1.Node{}
	node.Name = n.Name
	if err := e.Client.Delete(ctx, node); err != nil {
		return fmt.Errorf("delete the Node: %w", err)
	}
	began := time.Now()
	err = e.Eventually(ctx, "the CiliumNode is gone", func(ctx context.Context) error {
		_, err := e.CiliumNode(ctx, n.Name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	e.check(err == nil, "CiliumNode gone after its Node", "%.2f s", time.Since(began).Seconds())
	if err != nil {
		return err
	}
	if err := e.rejoin(ctx, n); err != nil {
		return err
	}
	after, err := e.CiliumNode(ctx, n.Name)
	if err != nil {
		return err
	}
	want, got := podCIDRs(before), podCIDRs(after)
	e.check(slices.Equal(want, got), "blocks before, after the node of the same name joined", "%v, %v", want, got)
	e.checkKept(ctx, n, pods, "pods restored at their address")
	flows, err := startPings(probe, pods[:5])
	if err != nil {
		return err
	}
	if err := pause(ctx, 2*time.Second); err != nil {
		return err
	}
	e.judgePings(flows, "packets lost by pods after that")
	return e.judgeRules(ctx)
}

// rejoin registers the node again and starts its agent.
func (e *env) rejoin(ctx context.Context, n *bed.Node) error {
	began := time.Now()
	if err := n.Register(ctx, nil); err != nil {
		return err
	}
	if err := n.StartAgent(ctx); err != nil {
		return err
	}
	if err := n.WaitAgent(ctx); err != nil {
		return err
	}
	e.note("Node created again to agent ready", "%.1f s", time.Since(began).Seconds())
	return nil
}
