package integration

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
)

// A gateway inside a block would be unreachable from every other node, so no node gets the
// block. A block that a node held before is reported until it is released, and is not assigned
// again.
func TestReservedInsideABlock(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.1.0.5/32", Description: "gateway of rack 1"}}
	}, "10.1.0.0/25")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.blockIs("n1", "10.1.0.32/27")

	e.change("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.Reserved = append(p.Spec.Reserved, v1alpha1.ReservedCIDR{CIDR: "10.1.0.48/28", Description: "gateways of rack 2"})
	})
	e.condition("all", v1alpha1.PoolReservedHeld, metav1.ConditionTrue, poolcontroller.ReasonHeldBefore,
		"block 10.1.0.32/27 of node n1 overlaps reserved 10.1.0.48/28 (gateways of rack 2)")
	e.event("all", event.ReasonReservedBlocksHeld)
	e.usedArePublished("n1")

	e.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	e.condition("all", v1alpha1.PoolReservedHeld, metav1.ConditionFalse, poolcontroller.ReasonNoneSkipped)
	e.awaitBlocks("the block is gone", "", 0, 0, nil)
	e.node("n2", nil)
	e.hasBlocks("n2", 1)
	e.blockIs("n2", "10.1.0.64/27")
}

// Pods do not get addresses of nodes and Services, if a pool covers them: no block with such
// an address is assigned, one in a block that a node holds is withdrawn unless it is in use,
// and the pool reports them.
func TestNodeAddressesAreNotForPods(t *testing.T) {
	e := newEnv(t)
	e.bareNode("first", nil)
	e.nodeAddress("first", "10.1.0.5")
	e.service("web", "10.1.0.33")
	e.Create(&ciliumv2.CiliumLoadBalancerIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "lb"},
		Spec:       ciliumv2.CiliumLoadBalancerIPPoolSpec{Blocks: []ciliumv2.CiliumLoadBalancerIPPoolIPBlock{{Start: "10.1.0.64", Stop: "10.1.0.71"}}},
	})
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24", "10.96.4.0/24")
	e.node("n1", nil)
	covered := []string{"10.1.0.5 of ", "10.1.0.33 of Service default/web", "10.1.0.64/29 of CiliumLoadBalancerIPPool lb"}
	if e.ServesServiceCIDRs() {
		covered = append(covered, "10.96.0.0/16 of ServiceCIDR kubernetes")
	}
	e.condition("all", v1alpha1.PoolCoversCluster, metav1.ConditionTrue, poolcontroller.ReasonExcluded, covered...)
	e.event("all", event.ReasonPoolCoversClusterAddresses)
	e.hasBlocks("n1", 1)
	for _, b := range e.Blocks("") {
		if blockIn(b, "10.1.0.0/26") || blockIn(b, "10.1.0.64/27") || blockIn(b, "10.96.0.0/16") {
			t.Errorf("node %s got block %s", b.Spec.NodeName, b.Spec.CIDR)
		}
	}

	block := netip.MustParsePrefix(e.Blocks("n1")[0].Spec.CIDR)
	e.load("n1", "load", 3)
	e.reported("n1", 4)
	free, used := freeAndUsed(e, "n1", block)
	e.bareNode("second", nil)
	e.nodeAddress("second", free.String(), used.String())
	e.leavesUnlessUsed("n1", free, used)
	e.nodeAddress("second", used.String())
	e.comesBack("n1", free)
	e.service("late", free.String(), used.String())
	e.leavesUnlessUsed("n1", free, used)
	e.condition("all", v1alpha1.PoolCoversCluster, metav1.ConditionTrue, poolcontroller.ReasonExcluded,
		used.String()+" of Node second (in block "+block.String()+" of node n1)")
	e.usedArePublished("n1")
}

// freeAndUsed returns a free address of a node's block, and one in use.
func freeAndUsed(e *env, node string, block netip.Prefix) (free, used netip.Addr) {
	inUse := e.held(node)
	for addr := block.Addr().Next(); block.Contains(addr); addr = addr.Next() {
		if _, is := inUse[addr]; is {
			used = addr
		} else if !free.IsValid() {
			free = addr
		}
	}
	return free, used
}

// leavesUnlessUsed waits until a free address has left the pool of a node; the used one
// must stay.
func (e *env) leavesUnlessUsed(node string, free, used netip.Addr) {
	e.eventuallyOn("the free address leaves", node, func(cn *ciliumv2.CiliumNode) error {
		if _, there := cn.Spec.IPAM.Pool[free.String()]; there {
			return fmt.Errorf("%s is published", free)
		}
		if _, there := cn.Spec.IPAM.Pool[used.String()]; !there {
			e.TB.Fatalf("%s was in use, and was taken away", used)
		}
		return nil
	})
}

// comesBack waits until an address is in the pool of a node again.
func (e *env) comesBack(node string, addr netip.Addr) {
	e.TB.Helper()
	e.eventuallyOn("the address comes back", node, func(cn *ciliumv2.CiliumNode) error {
		if _, there := cn.Spec.IPAM.Pool[addr.String()]; !there {
			return fmt.Errorf("%s is not published", addr)
		}
		return nil
	})
}

// A router address from an earlier IPAM that lies in another node's block is not assigned to
// pods there, until its agent has one in a block of its own node.
func TestRouterAddressInAnotherBlock(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/25")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.reported("n1", 1)
	e.load("n1", "load", 3)
	e.reported("n1", 4)
	block := netip.MustParsePrefix(e.Blocks("n1")[0].Spec.CIDR)
	free, used := freeAndUsed(e, "n1", block)
	e.bareNode("n2", nil)
	e.hasBlocks("n2", 1)
	e.router("n2", free, used)
	e.leavesUnlessUsed("n1", free, used)
	e.condition("all", v1alpha1.PoolCoversCluster, metav1.ConditionTrue, poolcontroller.ReasonExcluded,
		free.String()+" of CiliumNode n2 (in block "+block.String()+" of node n1)")
	e.usedArePublished("n1")

	e.router("n2", netip.MustParsePrefix(e.Blocks("n2")[0].Spec.CIDR).Addr().Next())
	e.comesBack("n1", free)
	e.condition("all", v1alpha1.PoolCoversCluster, metav1.ConditionFalse, poolcontroller.ReasonCoversNone)
}

// router sets other router addresses in a CiliumNode.
func (e *env) router(node string, addrs ...netip.Addr) {
	e.TB.Helper()
	var addresses []map[string]string
	for _, a := range addrs {
		addresses = append(addresses, map[string]string{"type": "CiliumInternalIP", "ip": a.String()})
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"addresses": addresses}})
	e.Must(err)
	e.Must(e.Client.Patch(e.Ctx, &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, patch)))
}

// nodeAddress sets other internal addresses in a Node.
func (e *env) nodeAddress(name string, addresses ...string) {
	e.TB.Helper()
	n := &corev1.Node{}
	e.Read(n, "", name)
	n.Status.Addresses = nil
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	e.UpdateStatus(n)
}

// service makes a Service with addresses of a load balancer.
func (e *env) service(name string, addresses ...string) {
	e.TB.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.Type, s.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Port: 80}}
	e.Create(s)
	for _, a := range addresses {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	e.UpdateStatus(s)
}

// blockIs fails unless the node's only block is the wanted one.
func (e *env) blockIs(node, want string) {
	e.TB.Helper()
	if blocks := e.Blocks(node); len(blocks) != 1 || blocks[0].Spec.CIDR != want {
		e.TB.Fatalf("node %s has %v, want %s", node, blocks, want)
	}
}
