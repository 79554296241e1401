//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

const (
	nodePods = 20
	// alone is how long an agent without a podCIDR is watched.
	alone = 8 * time.Second
	// onGrid is a block of the pool, offPools lies in none.
	onGrid   = "100.162.230.0/27"
	offPools = "100.170.0.0/24"
)

// modesKubernetes is the life of nodes in kubernetes mode: each agent waits for
// the block of its Node and keeps it, over its own restart, and over a Node made
// again under its name; podCIDRs that Nodes come with are adopted, or left alone.
func modesKubernetes(ctx context.Context, e *env) error {
	if err := e.startBeside(ctx, kubernetesMode, whole.OnNode()); err != nil {
		return err
	}
	k := &kubeNodes{env: e}
	return inTurn(ctx, k.joinAlone, k.join, k.restart, k.adopt, k.again, e.judgeWhole)
}

type kubeNodes struct {
	*env
	node  *bed.Node
	pods  []*bed.Pod
	block netip.Prefix
	probe *bed.Pod // on another node
}

// joinAlone starts an agent before our operator: it waits.
func (k *kubeNodes) joinAlone(ctx context.Context) (err error) {
	if k.node, err = k.AddNode(ctx, "n1"); err != nil {
		return err
	}
	if err := errors.Join(k.node.Register(ctx, nil), k.node.StartAgent(ctx)); err != nil {
		return err
	}
	if err := pause(ctx, alone); err != nil {
		return err
	}
	cn, getErr := k.CiliumNode(ctx, k.node.Name)
	k.check(getErr != nil || len(cn.Spec.IPAM.PodCIDRs) == 0, "podCIDRs that an agent without a block has made up after 8 s", "%d", len(cn.Spec.IPAM.PodCIDRs))
	began := time.Now()
	if err := k.operate(kubernetesMode); err != nil {
		return err
	}
	if err := k.node.WaitAgent(ctx); err != nil {
		return err
	}
	k.note("from the operator's start until that agent was ready", "%.1f s", time.Since(began).Seconds())
	k.block, err = k.blockOf(ctx, k.node.Name)
	return err
}

// join lets further nodes join, and runs pods on the first.
func (k *kubeNodes) join(ctx context.Context) error {
	took, err := k.joinSome(ctx, "ahead", nil)
	if err != nil {
		return err
	}
	k.note("Node created to agent ready, median of 3", "%.1f s", took.Seconds())
	other, err := k.env.node(ctx, "n2")
	if err != nil {
		return err
	}
	if k.probe, err = other.Run(ctx, "probe"); err != nil {
		return err
	}
	if k.pods, err = k.load(ctx, k.node, nodePods); err != nil {
		return err
	}
	inside := countIn(k.pods, k.block.String())
	k.check(inside == nodePods, "pods with an address of the block of their Node", "%d of %d", inside, nodePods)
	k.checkTold(ctx, k.node, k.pods, "pods whose address lies in the podCIDRs that the agent writes")
	return nil
}

// blockOf waits until a Node is told a CIDR that is a block of its own, and
// returns it.
func (k *kubeNodes) blockOf(ctx context.Context, name string) (netip.Prefix, error) {
	var told []netip.Prefix
	err := k.Eventually(ctx, "Node "+name+" is told its block", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := k.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		blocks, err := k.blocksOf(ctx, name)
		if told = whole.NodeCIDRs(node); err == nil && (len(told) != 1 || !slices.Equal(told, blocks)) {
			err = fmt.Errorf("told %v, blocks %v", told, blocks)
		}
		return err
	})
	if err != nil {
		return netip.Prefix{}, err
	}
	return told[0], nil
}

// blocksOf are the CIDRs of a node's PodIPBlocks.
func (e *env) blocksOf(ctx context.Context, name string) ([]netip.Prefix, error) {
	list := &v1alpha1.PodIPBlockList{}
	if err := e.Client.List(ctx, list); err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for i := range list.Items {
		if b, ok := whole.BlockOf(&list.Items[i]); ok && b.Node == name {
			out = append(out, b.CIDR)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out, nil
}

func (k *kubeNodes) restart(ctx context.Context) error {
	return k.restartAgent(ctx, k.node, k.pods, k.probe, k.pods[:pinged])
}

// adopt lets Nodes join that have a podCIDR already: of the pool's grid, and of
// no pool.
func (k *kubeNodes) adopt(ctx context.Context) error {
	n, err := k.AddNode(ctx, "adopted")
	if err != nil {
		return err
	}
	n.PodCIDRs = []string{onGrid}
	if err := k.bringUp(ctx, n, nil); err != nil {
		return err
	}
	block, err := k.blockOf(ctx, n.Name)
	if err != nil {
		return err
	}
	pods, err := k.load(ctx, n, pinged)
	if err != nil {
		return err
	}
	k.check(block.String() == onGrid && countIn(pods, onGrid) == pinged, "block of a Node that came with a podCIDR; pods with an address of it", "%s; %d of %d",
		block, countIn(pods, onGrid), pinged)

	foreign, err := k.AddNode(ctx, "foreign")
	if err != nil {
		return err
	}
	foreign.PodCIDRs = []string{offPools}
	if err := k.bringUp(ctx, foreign, nil); err != nil {
		return err
	}
	if pods, err = k.load(ctx, foreign, pinged); err != nil {
		return err
	}
	blocks, err := k.blocksOf(ctx, foreign.Name)
	k.check(err == nil && len(blocks) == 0 && countIn(pods, offPools) == pinged, "blocks of a Node whose podCIDR is in no pool; pods with an address of that", "%d; %d of %d",
		len(blocks), countIn(pods, offPools), pinged)
	return err
}

// again deletes the Node while its pods run on without an agent, and what belongs
// to it, as the garbage collector does. A Node of the same name is told the same
// block.
func (k *kubeNodes) again(ctx context.Context) error {
	if err := k.node.KillAgent(ctx); err != nil {
		return err
	}
	node, cn := &corev1.Node{}, &ciliumv2.CiliumNode{}
	node.Name, cn.Name = k.node.Name, k.node.Name
	if err := errors.Join(k.Client.Delete(ctx, node), k.Client.Delete(ctx, cn)); err != nil {
		return fmt.Errorf("delete the Node: %w", err)
	}
	if err := k.Eventually(ctx, "its block rests", k.resting); err != nil {
		return err
	}
	if err := k.rejoin(ctx, k.node); err != nil {
		return err
	}
	block, err := k.blockOf(ctx, k.node.Name)
	if err != nil {
		return err
	}
	k.check(block == k.block, "block before its Node was deleted; that of the Node of the same name", "%s; %s", k.block, block)
	k.checkTold(ctx, k.node, k.pods, "Node made again: pods restored at their address")
	flows, err := flowsBetween(k.probe, k.pods[:pinged], rapid)
	if err != nil {
		return err
	}
	if err := pause(ctx, probeTime); err != nil {
		return err
	}
	k.judgePings(flows, "Node made again: packets lost after that, both ways, every 5 ms")
	return nil
}

// resting tells why the block is not on its way back. Another node cannot have it
// then.
func (k *kubeNodes) resting(ctx context.Context) error {
	list := &v1alpha1.PodIPBlockList{}
	if err := k.Client.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		if b, ok := whole.BlockOf(&list.Items[i]); ok && b.CIDR == k.block && b.Cooling {
			return nil
		}
	}
	return fmt.Errorf("%s does not cool down", k.block)
}
