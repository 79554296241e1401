package main

import (
	"context"
	"fmt"
	"net/netip"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// listOf returns the blocks that other nodes route to a node.
func (m mode) listOf(cn *ciliumv2.CiliumNode) []netip.Prefix {
	if m.is(multiPoolMode) {
		return whole.AssignedTo(cn)
	}
	var out []netip.Prefix
	for _, cidr := range cn.Spec.IPAM.PodCIDRs {
		out = append(out, cidr.Prefix)
	}
	return out
}

// nodesTell returns nil once, in kubernetes mode, each Node assigns to its agent exactly
// the block that it holds.
func (c *chaos) nodesTell(ctx context.Context, has map[string]map[netip.Prefix]bool) error {
	if !c.Mode.is(kubernetesMode) {
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := c.client.List(ctx, nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		assigned := whole.NodeCIDRs(node)
		if len(assigned) != 1 || len(has[node.Name]) != 1 || !has[node.Name][assigned[0]] {
			return fmt.Errorf("%s is assigned %v and holds %v", node.Name, assigned, has[node.Name])
		}
	}
	return nil
}

// replaceDrained ends drains in kubernetes mode: it deletes the nodes whose block was
// deleted, and recreates them once the blocks are gone.
func (c *chaos) replaceDrained(ctx context.Context) error {
	deleted := func(ctx context.Context) (map[types.UID]string, error) {
		blocks, nodes := &v1alpha1.PodIPBlockList{}, map[types.UID]string{}
		err := persist(ctx, func(ctx context.Context) error { return c.client.List(ctx, blocks) })
		for i := range blocks.Items {
			if b := &blocks.Items[i]; b.DeletionTimestamp != nil {
				nodes[b.UID] = b.Spec.NodeName
			}
		}
		return nodes, err
	}
	drained, err := deleted(ctx)
	if err != nil {
		return err
	}
	nodes := map[string]bool{}
	for _, node := range drained {
		nodes[node] = true
	}
	for node := range nodes {
		if err := c.removeNode(ctx, node); err != nil {
			return err
		}
	}
	err = until(ctx, patience, func(ctx context.Context) error {
		left, err := deleted(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("blocks of nodes that are gone are there: %v", left)
		}
		return err
	})
	for node := range nodes {
		if err == nil {
			err = c.joinNode(ctx, node)
		}
	}
	if len(nodes) > 0 && err == nil {
		c.say("  nodes whose blocks were deleted are replaced: %d", len(nodes))
	}
	return err
}
