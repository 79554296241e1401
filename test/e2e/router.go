//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const routerPods = 10

// router drains the block with the node's router address. The agent keeps that address
// over a plain restart, but not if it finds it marked for release. The operator is down
// while that is done, as it withdraws the marks of an agent that restarts.
func router(ctx context.Context, e *env) error {
	n, probe, err := e.pair(ctx, soon()...)
	if err != nil {
		return err
	}
	cn, err := e.CiliumNode(ctx, n.Name)
	if err != nil {
		return err
	}
	old, block := routerAddress(cn), &v1alpha1.PodIPBlock{}
	block.Name = strings.ReplaceAll(podCIDRs(cn)[0], "/", "-")
	if err := e.Client.Delete(ctx, block); err != nil {
		return fmt.Errorf("delete block: %w", err)
	}
	s := &restarts{env: e, node: n, probe: probe}
	if err := s.await(ctx, "nothing but the router is left of it", func(cn *ciliumv2.CiliumNode) bool {
		return len(cn.Spec.IPAM.Pool) == perBlock+1
	}); err != nil {
		return err
	}
	pods, err := e.load(ctx, n, routerPods)
	if err != nil {
		return err
	}
	flows, err := startPings(probe, pods[:pinged])
	if err != nil {
		return err
	}
	if err := s.bounce(ctx, "plain restart", nil); err != nil {
		return err
	}
	if cn, err = e.CiliumNode(ctx, n.Name); err != nil {
		return err
	}
	e.note("router address before, after a plain restart", "%s, %s", old, routerAddress(cn))
	if err := e.moveRouter(ctx, n, old); err != nil {
		return err
	}
	err = s.await(ctx, "the router has moved", func(cn *ciliumv2.CiliumNode) bool { return routerAddress(cn) != old })
	if cn, err := e.CiliumNode(ctx, n.Name); err == nil {
		e.check(routerAddress(cn) != old, "router address after a restart with it marked for release", "%s", routerAddress(cn))
	}
	if err != nil {
		return err
	}
	err = e.Eventually(ctx, "the block has gone", func(ctx context.Context) error {
		err := e.Client.Get(ctx, client.ObjectKeyFromObject(block), block)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %v: %w", block.Status.Conditions, err)
	})
	e.check(err == nil, "its block has gone then", "%t", err == nil)
	e.checkKept(ctx, n, pods, "pods at their address")
	e.judgePings(flows, "packets lost by pods through all that")
	return nil
}

// moveRouter restarts the agent with its router's address marked for release.
func (e *env) moveRouter(ctx context.Context, n *bed.Node, old string) (err error) {
	if err := e.operator.Kill(); err != nil {
		return err
	}
	if err := n.KillAgent(ctx); err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"status": map[string]any{"ipam": map[string]any{
		"release-ips": map[string]string{old: ipamoption.IPAMMarkForRelease},
	}}})
	if err != nil {
		return fmt.Errorf("mark the router: %w", err)
	}
	cn := &ciliumv2.CiliumNode{}
	cn.Name = n.Name
	if err := e.Client.Status().Patch(ctx, cn, client.RawPatch("application/merge-patch+json", data)); err != nil {
		return fmt.Errorf("mark the router: %w", err)
	}
	if err := n.StartAgent(ctx); err != nil {
		return err
	}
	if err := n.WaitAgent(ctx); err != nil {
		return err
	}
	e.operator, err = e.StartOperator(soon()...)
	return err
}

// routerAddress is the address of cilium_host.
func routerAddress(cn *ciliumv2.CiliumNode) string {
	for _, a := range cn.Spec.Addresses {
		if a.Type == "CiliumInternalIP" {
			return a.IP
		}
	}
	return ""
}
