package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// pickNodes picks about one of ten nodes.
func (c *chaos) pickNodes(random *rand.Rand) []string {
	picked := map[string]bool{}
	for range 1 + random.IntN(1+c.nodes/10) {
		picked[nodeName(random.IntN(c.nodes))] = true
	}
	out := make([]string, 0, len(picked))
	for node := range picked {
		out = append(out, node)
	}
	slices.Sort(out)
	return out
}

// restartAgents restarts agents without waiting until they are up again.
func (c *chaos) restartAgents(ctx context.Context, random *rand.Rand) error {
	atOnce, cancel := context.WithCancel(ctx)
	cancel()
	for _, node := range c.pickNodes(random) {
		_ = c.fleet.Machine(node).Restart(atOnce) // it reports that it is not up yet
	}
	return nil
}

// replaceNodes deletes nodes with their pods, and recreates them before or after their blocks
// are released.
func (c *chaos) replaceNodes(ctx context.Context, random *rand.Rand) error {
	nodes := c.pickNodes(random)
	for _, node := range nodes {
		if err := c.removeNode(ctx, node); err != nil {
			return err
		}
	}
	if err := harness.Sleep(ctx, upTo(random, c.mode.nodesAway())); err != nil {
		return err
	}
	for _, node := range nodes {
		if err := c.joinNode(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// removeNode removes a machine: it deletes its Node, and then its pods, as the garbage
// collector does.
func (c *chaos) removeNode(ctx context.Context, node string) error {
	c.load.remove(node)
	c.fleet.Scrap(node)
	err := persist(ctx, func(ctx context.Context) error {
		return client.IgnoreNotFound(c.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}))
	})
	if err != nil {
		return fmt.Errorf("delete node %s: %w", node, err)
	}
	if err := c.collect(ctx, node); err != nil {
		return err
	}
	return persist(ctx, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := c.client.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
			return err
		}
		for i := range pods.Items {
			if err := c.client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	})
}

// collect deletes the CiliumNode of a removed machine, as the garbage collector does, unless
// the operator does so in this mode.
func (c *chaos) collect(ctx context.Context, node string) error {
	if c.mode != kubernetesMode {
		return nil
	}
	err := persist(ctx, func(ctx context.Context) error {
		return client.IgnoreNotFound(c.client.Delete(ctx, &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: node}}))
	})
	if err != nil {
		return fmt.Errorf("delete CiliumNode %s: %w", node, err)
	}
	return nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%03d", i) }

// joinNode registers a Node, as a kubelet does, and boots its machine.
func (c *chaos) joinNode(ctx context.Context, name string) error {
	var number int
	if _, err := fmt.Sscanf(name, "node-%d", &number); err != nil {
		return err
	}
	// The machine's last writes may have come late.
	if err := c.collect(ctx, name); err != nil {
		return err
	}
	labels := map[string]string{corev1.LabelHostname: name, zoneLabel: zones[number%len(zones)]}
	address := netip.AddrFrom4([4]byte{192, 168, byte(1 + number/200), byte(1 + number%200)})
	err := persist(ctx, func(ctx context.Context) error {
		return harness.JoinNode(ctx, c.client, name, address.String(), labels)
	})
	if err != nil {
		return err
	}
	c.fleet.Boot(ctx, name, c.mode.families()...)
	c.load.add(name)
	return nil
}

// deleteBlock requests the drain of a block by deleting it.
func (c *chaos) deleteBlock(ctx context.Context, random *rand.Rand) error {
	c.load.surge(ctx)
	return until(ctx, patience, func(ctx context.Context) error { return c.deleteOne(ctx, random) })
}

// deleteOne deletes a block that can drain: a block with one of the agent's own addresses
// stays for as long as the agent lives. In kubernetes mode every block stays until people
// replace its node.
func (c *chaos) deleteOne(ctx context.Context, random *rand.Rand) error {
	blocks := &v1alpha1.PodIPBlockList{}
	if err := c.client.List(ctx, blocks); err != nil {
		return err
	}
	for _, i := range random.Perm(len(blocks.Items)) {
		b := &blocks.Items[i]
		if b.DeletionTimestamp == nil && c.drainable(b) {
			return c.client.Delete(ctx, b, client.Preconditions{UID: &b.UID})
		}
	}
	return errors.New("no block can drain")
}

func (c *chaos) drainable(b *v1alpha1.PodIPBlock) bool {
	cidr, err := netip.ParsePrefix(b.Spec.CIDR)
	m := c.fleet.Machine(b.Spec.NodeName)
	if err != nil || m == nil || c.mode == kubernetesMode {
		return err == nil && m != nil
	}
	own := m.Own()
	return len(own) == c.mode.ownAddresses() && !slices.ContainsFunc(own, cidr.Contains)
}
