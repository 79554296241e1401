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
	// onGrid is a block of the pool, offPools is in no pool.
	onGrid   = "100.66.230.0/27"
	offPools = "100.74.0.0/24"
)

// modesKubernetes runs nodes in kubernetes mode: each agent waits for the block of its Node
// and keeps it, across its own restart and across a Node recreated under its name. podCIDRs
// that Nodes join with are adopted, or left unchanged.
func modesKubernetes(ctx context.Context, e *env) error {
	if err := e.startBeside(ctx, kubernetesMode, whole.OnNode()); err != nil {
		return err
	}
	k := &kubeNodes{env: e}
	return inTurn(ctx, k.joinAlone, k.join, k.restart, k.adopt, k.again, e.judgeWhole)
}

type kubeNodes struct {
	*env
	node   *bed.Node
	pods   []*bed.Pod
	blocks []netip.Prefix // one of each family
	probe  *bed.Pod       // on another node
}

// joinAlone starts an agent before our operator, for which the agent waits.
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
	k.blocks, err = k.assignedTo(ctx, k.node.Name)
	return err
}

// join lets further nodes join, and runs pods on the first.
func (k *kubeNodes) join(ctx context.Context) error {
	took, err := k.joinSome(ctx, "ahead", nil, nil)
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
	inside := countAt(k.pods, k.blocks)
	k.check(inside == nodePods, "pods with an address of each block of their Node; blocks", "%d of %d; %d", inside, nodePods, len(k.blocks))
	k.checkAssigned(ctx, k.node, k.pods, "pods whose address lies in the podCIDRs that the agent writes")
	return nil
}

// countAt counts the pods that have an address in each of the blocks, and no other address.
func countAt(pods []*bed.Pod, blocks []netip.Prefix) int {
	count := 0
	for _, p := range pods {
		if slices.EqualFunc(blocks, p.Addresses, netip.Prefix.Contains) {
			count++
		}
	}
	return count
}

// assignedTo waits until a Node is assigned exactly one of its own blocks of each family, and
// no other CIDR, and returns them, IPv4 first.
func (k *kubeNodes) assignedTo(ctx context.Context, name string) ([]netip.Prefix, error) {
	var assigned []netip.Prefix
	err := k.Eventually(ctx, "Node "+name+" is assigned its blocks", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := k.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		blocks, err := k.blocksOf(ctx, name)
		if assigned = whole.NodeCIDRs(node); err == nil && (len(assigned) != k.families() || !slices.Equal(assigned, blocks)) {
			err = fmt.Errorf("assigned %v, blocks %v", assigned, blocks)
		}
		return err
	})
	return assigned, err
}

// blocksOf returns the CIDRs of a node's PodIPBlocks.
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

// joinWith lets a Node join that already has a podCIDR, and runs pods on it.
func (k *kubeNodes) joinWith(ctx context.Context, name, podCIDR string) ([]*bed.Pod, error) {
	n, err := k.AddNode(ctx, name)
	if err != nil {
		return nil, err
	}
	n.PodCIDRs = []string{podCIDR}
	if err := k.bringUp(ctx, n, nil); err != nil {
		return nil, err
	}
	return k.load(ctx, n, pinged)
}

// adopt lets Nodes join that already have a podCIDR: one on the pool's grid, one in
// no pool.
func (k *kubeNodes) adopt(ctx context.Context) error {
	if err := k.adoptGrid(ctx); err != nil {
		return err
	}
	pods, err := k.joinWith(ctx, "foreign", offPools)
	if err != nil {
		return err
	}
	blocks, err := k.blocksOf(ctx, "foreign")
	k.check(err == nil && len(blocks) == 0 && countIn(pods, offPools) == pinged, "blocks of a Node whose podCIDR is in no pool; pods with an address of that", "%d; %d of %d",
		len(blocks), countIn(pods, offPools), pinged)
	return err
}

// adoptGrid lets a Node join that has an IPv4 podCIDR on the pool's grid. In a
// dual-stack cluster it is assigned an IPv6 block as well.
func (k *kubeNodes) adoptGrid(ctx context.Context) error {
	pods, err := k.joinWith(ctx, "adopted", onGrid)
	if err != nil {
		return err
	}
	blocks, err := k.assignedTo(ctx, "adopted")
	if err != nil {
		return err
	}
	inside := countAt(pods, blocks)
	k.check(blocks[0].String() == onGrid && inside == pinged, "blocks of a Node that came with an IPv4 podCIDR; pods with an address of each", "%v; %d of %d",
		blocks, inside, pinged)
	return nil
}

// again deletes the Node, and its CiliumNode as the garbage collector does, while its pods run
// on without an agent. A Node of the same name must be assigned the same blocks.
func (k *kubeNodes) again(ctx context.Context) error {
	if err := k.node.KillAgent(ctx); err != nil {
		return err
	}
	node, cn := &corev1.Node{}, &ciliumv2.CiliumNode{}
	node.Name, cn.Name = k.node.Name, k.node.Name
	if err := errors.Join(k.Client.Delete(ctx, node), k.Client.Delete(ctx, cn)); err != nil {
		return fmt.Errorf("delete the Node: %w", err)
	}
	if err := k.Eventually(ctx, "its blocks cool down", k.cooling); err != nil {
		return err
	}
	if err := k.rejoin(ctx, k.node); err != nil {
		return err
	}
	blocks, err := k.assignedTo(ctx, k.node.Name)
	if err != nil {
		return err
	}
	k.check(slices.Equal(blocks, k.blocks), "blocks before their Node was deleted; those of the Node of the same name", "%v; %v", k.blocks, blocks)
	k.checkAssigned(ctx, k.node, k.pods, "Node recreated: pods restored at their address")
	flows, err := flowsBetween(k.probe, k.pods[:pinged], rapid)
	if err != nil {
		return err
	}
	if err := pause(ctx, probeTime); err != nil {
		return err
	}
	k.judgePings(flows, "Node recreated: packets lost after that, both ways, every 5 ms")
	return nil
}

// cooling returns an error while one of the node's blocks is not cooling down. A
// cooling block is assigned to no other node.
func (k *kubeNodes) cooling(ctx context.Context) error {
	list := &v1alpha1.PodIPBlockList{}
	if err := k.Client.List(ctx, list); err != nil {
		return err
	}
	cooling := map[netip.Prefix]bool{}
	for i := range list.Items {
		if b, ok := whole.BlockOf(&list.Items[i]); ok {
			cooling[b.CIDR] = b.Cooling
		}
	}
	for _, cidr := range k.blocks {
		if !cooling[cidr] {
			return fmt.Errorf("%s does not cool down", cidr)
		}
	}
	return nil
}
