package integration

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

func TestJoin(t *testing.T) {
	e := newServed(t)
	n := e.bareNode("n1", nil)
	e.hasBlocks("n1", 1)
	cn := e.readCiliumNode("n1")
	if len(cn.OwnerReferences) != 1 || cn.OwnerReferences[0].UID != n.UID {
		t.Errorf("the CiliumNode is not owned by its Node: %v", cn.OwnerReferences)
	}
	if got := e.Blocks("n1")[0]; got.Name != "10.1.0.0-27" || got.Spec.NodeUID != string(n.UID) || got.Spec.PoolName != "all" {
		t.Errorf("first block is %s of %+v, want the lowest", got.Name, got.Spec)
	}
	a := e.agent("n1")
	e.ready(a)
}

func TestIPv6Only(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.Create(&v1alpha1.PodIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "six"},
		Spec:       v1alpha1.PodIPPoolSpec{IPv6: &v1alpha1.IPv6Ranges{BlockSize: 122, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00:10::/48"}}}},
	})
	e.node("n1", nil, agent.IPv6)
	e.load("n1", "load", 100)
	e.awaitBlocks("101 addresses at 62 a block need 3 to stay at 80 % in use", "n1", 3, 3, nil)
	e.DeletePods("load", nil)
	e.onNode("the node is back to one block", "n1", func(cn *ciliumv2.CiliumNode) bool {
		return len(e.Blocks("n1")) == 1 && len(cn.Spec.IPAM.Pool) == 62 && len(cn.Status.IPAM.ReleaseIPs) == 0
	})
	e.usedArePublished("n1")
}

func TestEdgeOfABlockNoLongerAllowed(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.AllowFirstIP, p.Spec.IPv4.AllowLastIP = new(true), new(true) }, "10.1.0.0/27")
	e.node("n1", nil)
	e.load("n1", "load", 31) // with the router, all of its addresses, including the first and the last
	e.change("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.AllowFirstIP, p.Spec.IPv4.AllowLastIP = new(false), new(false)
	})
	e.change("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.2.0.0/24"})
	})
	e.usedArePublished("n1")
	e.DeletePods("load", nil)
	router := e.held("n1")
	e.eventuallyOn("the first and last address leave once unused", "n1", func(cn *ciliumv2.CiliumNode) error {
		for _, edge := range []string{"10.1.0.0", "10.1.0.31"} {
			_, published := cn.Spec.IPAM.Pool[edge]
			if _, used := router[netip.MustParseAddr(edge)]; published && !used {
				return fmt.Errorf("%s is still published", edge)
			}
		}
		return nil
	})
}

func TestPause(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", func(p *v1alpha1.PodIPPool) { p.Spec.Paused = new(true) }, "10.1.0.0/24")
	e.pool("other", priority(-1), "10.2.0.0/24")
	e.pool("probe", func(p *v1alpha1.PodIPPool) { zone("probe")(p); priority(1)(p) }, "10.3.0.0/24")
	e.bareNode("n1", nil)
	e.condition("all", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonPaused)
	if got := e.Blocks(""); len(got) != 0 {
		t.Errorf("blocks were claimed on a node of a paused pool: %v", got)
	}
	e.changeNode("n1", func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"} })
	e.bareNode("probe", map[string]string{"zone": "probe"})
	e.hasBlocks("probe", 1) // by now the operator has seen the pause
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.Paused = new(false) })
	e.bareNode("n2", nil)
	e.hasBlocks("n2", 1)
	if got := e.Blocks("n1"); len(got) != 0 {
		t.Errorf("blocks were claimed on a paused node: %v", got)
	}
	e.changeNode("n1", func(n *corev1.Node) { n.Annotations = nil })
	e.hasBlocks("n1", 1)
}

func TestExhaustedPoolSpillsAndRecovers(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("first", priority(10), "10.1.0.0/27")
	e.pool("second", nil, "10.2.0.0/27")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.condition("first", v1alpha1.PoolExhausted, metav1.ConditionTrue, poolcontroller.ReasonExhausted)
	e.event("first", event.ReasonPoolExhausted)
	e.load("n1", "load", 45)
	e.hasBlocks("n1", 2)
	e.eventSays("n1", event.ReasonBlockClaimed, "of pool second on node n1: claimed, as the node wants ")
	e.eventSays("n1", event.ReasonBlockClaimed, "; pool first, which comes first, has no block for it")
	e.condition("second", v1alpha1.PoolExhausted, metav1.ConditionTrue, poolcontroller.ReasonExhausted)
	for _, pool := range []string{"first", "second"} { // the node has enough addresses for its pods
		e.condition(pool, v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing)
	}

	e.Pods("n1", "more", 40) // 86 with the router, but there are 60 addresses
	e.shortage("n1", corev1.ConditionTrue)
	e.eventSays("first", event.ReasonPodAddressShortage, "no free block left for ipv4; no block cools down. Nodes that need another block take one of pool second")
	e.condition("first", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonNodesShort)
	e.condition("second", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonNodesShort)
	e.change("first", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.3.0.0/24"})
	})
	e.running("more", 40)
	e.shortage("n1", corev1.ConditionFalse)
	for _, pool := range []string{"first", "second"} {
		e.condition(pool, v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing)
	}
	e.event("first", event.ReasonPoolRecovered)
}

// shortage waits for the Node condition.
func (e *env) shortage(node string, status corev1.ConditionStatus) {
	e.TB.Helper()
	e.Eventually(fmt.Sprintf("node %s has %s=%s", node, v1alpha1.NodeAddressShortage, status), func() error {
		n := &corev1.Node{}
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: node}, n); err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1alpha1.NodeAddressShortage && c.Status == status {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", n.Status.Conditions)
	})
}

func TestShortageTaint(t *testing.T) {
	for _, s := range []config.Settings{quick(), quickMultiPool()} {
		t.Run(s.Mode.String(), func(t *testing.T) { taintsWhileShort(t, s) })
	}
}

func taintsWhileShort(t *testing.T, s config.Settings) {
	e := newEnv(t)
	s.ShortageTaint = shortageTaint
	e.start(s)
	e.pool("tiny", nil, "10.1.0.0/27")
	ends := func() { e.DeletePods("load", nil) }
	if s.Mode.WholeBlocks() {
		e.bareNode("n1", nil)
		e.isAssigned("n1", 1)
		e.AgentRequests("n1", 48, 1)
		ends = func() { e.DropPods(); e.AgentRequests("n1", 16, 1) }
	} else {
		e.node("n1", nil)
	}
	e.Pods("n1", "load", 40)
	tainted := func(want bool) {
		t.Helper()
		e.Eventually(fmt.Sprintf("taint is %v", want), func() error {
			n := &corev1.Node{}
			if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: "n1"}, n); err != nil {
				return err
			}
			has := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == shortageTaint })
			if has != want {
				return fmt.Errorf("taints are %v", n.Spec.Taints)
			}
			return nil
		})
	}
	tainted(true)
	ends()
	tainted(false)
}
