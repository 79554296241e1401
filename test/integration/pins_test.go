package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func newPin(cidr, node string) *v1alpha1.PodIPPin {
	obj := fixtures.Pin(cidr, node)
	obj.UID, obj.Generation = "", 0
	return obj
}

// pinIs waits until the pin of a block is ready, or not, for a reason.
func (e *env) pinIs(cidr string, ready metav1.ConditionStatus, reason string) {
	e.TB.Helper()
	e.Eventually(fmt.Sprintf("pin %s is %s for %s", cidr, ready, reason), func() error {
		pin := &v1alpha1.PodIPPin{}
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: fixtures.Pin(cidr, "").Name}, pin); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(pin.Status.Conditions, v1alpha1.PinReady); c == nil || c.Status != ready || c.Reason != reason {
			return fmt.Errorf("conditions are %v", pin.Status.Conditions)
		}
		return nil
	})
}

// A pinned block waits for its Node, though the pool is full, also while the Node is away.
func TestPinnedBlock(t *testing.T) {
	const cidr = "10.1.0.0/27"
	e := newEnv(t)
	e.start(quick())
	e.Create(newPin(cidr, "n1"))
	e.pinIs(cidr, metav1.ConditionFalse, v1alpha1.PinNotInPool)
	e.pool("all", nil, "10.1.0.0/26")
	e.pinIs(cidr, metav1.ConditionFalse, v1alpha1.PinWaitsForNode)
	e.Create(newPin("10.1.0.0/28", "n1"))
	e.pinIs("10.1.0.0/28", metav1.ConditionFalse, v1alpha1.PinNotABlock)
	e.node("n2", nil)
	e.load("n2", "load", 25)
	e.awaitBlocks("the other node gets the other block alone", "n2", 1, 1, inCIDR("10.1.0.32/27"))
	e.condition("all", v1alpha1.PoolExhausted, metav1.ConditionTrue, "")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.pinIs(cidr, metav1.ConditionTrue, v1alpha1.PinHeld)

	e.change("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.2.0.0/26"})
	})
	e.fleet.Scrap("n1")
	e.Must(e.Client.Delete(e.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}))
	e.awaitBlocks("the Node is gone, and its blocks with it", "n1", 0, 0, nil)
	e.pinIs(cidr, metav1.ConditionFalse, v1alpha1.PinWaitsForNode)
	e.load("n2", "more", 40)
	e.awaitBlocks("the other node grows elsewhere", "n2", 2, many, inCIDR("10.2.0.0/26"))
	e.awaitBlocks("and never has the pinned block", "n2", 0, 0, inCIDR(cidr))
	e.node("n1", nil)
	e.pinIs(cidr, metav1.ConditionTrue, v1alpha1.PinHeld)
}

// In multi-pool mode, too, a pinned block is kept for its Node.
func TestPinnedBlockOfMultiPool(t *testing.T) {
	const cidr = "10.1.0.0/27"
	e := newEnv(t)
	e.start(quickMultiPool())
	e.Create(newPin(cidr, "n1"))
	e.pool("all", nil, "10.1.0.0/26")
	e.pinIs(cidr, metav1.ConditionFalse, v1alpha1.PinWaitsForNode)
	e.bareNode("n2", nil)
	e.isAssigned("n2", 1)
	e.AgentRequests("n2", 40, 1)
	e.condition("all", v1alpha1.PoolExhausted, metav1.ConditionTrue, "")
	e.awaitBlocks("the other node gets the other block alone", "n2", 1, 1, inCIDR("10.1.0.32/27"))
	e.bareNode("n1", nil)
	e.isAssigned("n1", 1)
	e.pinIs(cidr, metav1.ConditionTrue, v1alpha1.PinHeld)
}

// podPool is the Cilium pool of pod web-0 of namespace default, and oldPodPool its earlier name.
const (
	podPool    = "zz.web-0.default.pods.cilium-pool.io"
	oldPodPool = "web-0.default.pod.cilium-pool.io"
)

// lists waits until the agent of a node is assigned this CIDR of an owner's pool, or none if it is "".
func lists(e *env, node, cidr string) {
	e.TB.Helper()
	e.eventuallyOn(fmt.Sprintf("the agent of %s is assigned %q for an owner", node, cidr), node, func(cn *ciliumv2.CiliumNode) error {
		if got := podAddress(cn); got != cidr {
			return fmt.Errorf("it is assigned %q", got)
		}
		return nil
	})
}

// podAddress returns the CIDRs that a CiliumNode lists for an owner.
func podAddress(cn *ciliumv2.CiliumNode) string {
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		if crd.OwnerOfPool(entry.Pool) != "" && len(entry.CIDRs) > 0 {
			return fmt.Sprint(entry.CIDRs)
		}
	}
	return ""
}

// bindWeb creates pod web-0 on a node.
func bindWeb(e *env, node string) *corev1.Pod {
	pod := harness.BoundPod(node, "web-0", nil)
	pod.Labels, pod.Annotations = map[string]string{"app": "web"}, map[string]string{"ipam.cilium.io/require-pool-match": "true"}
	e.Create(pod)
	return pod
}

// returnsWeb is the agent's write once the owner's pod is gone.
func returnsWeb(e *env, node string) {
	e.TB.Helper()
	e.eventuallyOn("the agent returns the address", node, func(cn *ciliumv2.CiliumNode) error {
		pools := &cn.Spec.IPAM.Pools
		pools.Allocated = slices.DeleteFunc(pools.Allocated, func(a ipamtypes.IPAMPoolAllocation) bool { return crd.OwnerOfPool(a.Pool) != "" })
		return e.Client.Update(e.Ctx, cn)
	})
}

// The address of a pod's name follows its pods from node to node, never in two nodes' lists, and
// over restarts of the operator. Pods of its pool get the others.
func TestAddressPinnedToPod(t *testing.T) {
	e := newEnv(t)
	op := e.start(quickMultiPool())
	e.pool("all", nil, "10.1.0.0/24")
	e.pool("singles", func(p *v1alpha1.PodIPPool) { p.Spec.CiliumPoolName, p.Spec.IPv4.BlockSize = "singles", 32 }, "10.2.0.0/30")
	pin := &v1alpha1.PodIPPin{ObjectMeta: metav1.ObjectMeta{Name: "10.2.0.0-32"}, Spec: v1alpha1.PodIPPinSpec{CIDR: "10.2.0.0/32", PodNamespace: "default", PodName: "web-0"}}
	e.Create(pin)
	e.pinIs("10.2.0.0/32", metav1.ConditionFalse, v1alpha1.PinNotClaimed)
	e.ciliumPool(podPool, "[2001:db8::/128] 32")
	for _, node := range []string{"n1", "n2"} {
		e.bareNode(node, nil)
		e.isAssigned(node, 1)
		e.AgentRequests(node, 16, 1)
	}
	olderThan(e, "n1", time.Second)

	pod := bindWeb(e, "n1")
	lists(e, "n1", "[10.2.0.0/32]")
	e.pinIs("10.2.0.0/32", metav1.ConditionTrue, v1alpha1.PinHeld)

	// The pod is bound elsewhere before the first agent has returned the address.
	e.Must(e.Client.Delete(e.Ctx, pod, client.GracePeriodSeconds(0)))
	pod = bindWeb(e, "n2")
	e.never("the address is in two lists", func() bool {
		return podAddress(e.readCiliumNode("n2")) != ""
	})
	op.stop()
	op = e.start(quickMultiPool())
	returnsWeb(e, "n1")
	lists(e, "n2", "[10.2.0.0/32]")
	lists(e, "n1", "")

	// Other pods of the pool never get it.
	many := make([]*corev1.Pod, 4)
	for i := range many {
		many[i] = harness.BoundPod("n1", fmt.Sprintf("other-%d", i), nil)
		many[i].Annotations = map[string]string{"ipam.cilium.io/ip-pool": "singles"}
		e.Create(many[i])
	}
	e.eventuallyOn("the others get the rest", "n1", func(cn *ciliumv2.CiliumNode) error {
		for _, entry := range cn.Spec.IPAM.Pools.Allocated {
			if entry.Pool == "singles" && fmt.Sprint(entry.CIDRs) == "[10.2.0.1/32 10.2.0.2/32 10.2.0.3/32]" {
				return nil
			}
		}
		return fmt.Errorf("assigned %+v", cn.Spec.IPAM.Pools.Allocated)
	})

	// Without the pin the pod keeps the address as long as its agent has it.
	e.Delete(pin)
	op.stop()
	e.start(quickMultiPool())
	e.never("the CiliumPodIPPool of a listed address goes", func() bool {
		return e.Client.Get(e.Ctx, client.ObjectKey{Name: podPool}, &ciliumv2alpha1.CiliumPodIPPool{}) != nil
	})
	lists(e, "n2", "[10.2.0.0/32]")
	e.Must(e.Client.Delete(e.Ctx, pod, client.GracePeriodSeconds(0)))
	returnsWeb(e, "n2")
	e.ciliumPool(podPool, "")
	e.eventuallyOn("the last pod gets it", "n1", func(cn *ciliumv2.CiliumNode) error {
		for _, entry := range cn.Spec.IPAM.Pools.Allocated {
			if entry.Pool == "singles" && len(entry.CIDRs) == 4 {
				return nil
			}
		}
		return fmt.Errorf("assigned %+v", cn.Spec.IPAM.Pools.Allocated)
	})
}

// A pod whose address an earlier operator pinned keeps the Cilium pool of the old name, from node to node, until
// it is gone: agents assign nothing to a pod that two CiliumPodIPPools select.
func TestAddressPinnedUnderOldName(t *testing.T) {
	const cidr = "10.2.0.0/32"
	e := newEnv(t)
	e.pool("all", nil, "10.1.0.0/24")
	e.pool("singles", func(p *v1alpha1.PodIPPool) { p.Spec.CiliumPoolName, p.Spec.IPv4.BlockSize = "singles", 32 }, "10.2.0.0/30")
	pin := &v1alpha1.PodIPPin{ObjectMeta: metav1.ObjectMeta{Name: "10.2.0.0-32"}, Spec: v1alpha1.PodIPPinSpec{CIDR: cidr, PodNamespace: "default", PodName: "web-0"}}
	e.Create(pin)
	e.Create(ciliumpool.New(oldPodPool, [2]int{32, 0}, ciliumpool.Marks{}))
	op := e.start(quickMultiPool())
	for _, node := range []string{"n1", "n2"} {
		e.bareNode(node, nil)
		e.isAssigned(node, 1)
		e.AgentRequests(node, 16, 1)
	}
	olderThan(e, "n1", time.Second)
	pod := bindWeb(e, "n1")
	lists(e, "n1", "["+cidr+"]")
	if entries := e.readCiliumNode("n1").Spec.IPAM.Pools.Allocated; !slices.ContainsFunc(entries, func(a ipamtypes.IPAMPoolAllocation) bool { return a.Pool == oldPodPool }) {
		t.Errorf("the agent has %+v", entries)
	}
	// People delete the object: its address is listed, so it comes again.
	e.Delete(e.ciliumPool(oldPodPool, "[2001:db8::/128] 32"))
	e.ciliumPool(oldPodPool, "[2001:db8::/128] 32")
	op.stop()
	e.start(quickMultiPool())
	e.never("a second CiliumPodIPPool selects the pod", func() bool {
		return e.Client.Get(e.Ctx, client.ObjectKey{Name: podPool}, &ciliumv2alpha1.CiliumPodIPPool{}) == nil
	})
	e.pinIs(cidr, metav1.ConditionTrue, v1alpha1.PinHeld)

	e.Must(e.Client.Delete(e.Ctx, pod, client.GracePeriodSeconds(0)))
	pod = bindWeb(e, "n2")
	returnsWeb(e, "n1")
	lists(e, "n2", "["+cidr+"]")
	e.Must(e.Client.Delete(e.Ctx, pod, client.GracePeriodSeconds(0)))
	returnsWeb(e, "n2")
	e.pinIs(cidr, metav1.ConditionFalse, v1alpha1.PinNotClaimed)
	e.Delete(e.ciliumPool(oldPodPool, "[2001:db8::/128] 32"))
	e.ciliumPool(podPool, "[2001:db8::/128] 32")
	bindWeb(e, "n1")
	lists(e, "n1", "["+cidr+"]")
}

// A pool makes the pins of its pods by itself, and deletes them once their pods are gone.
func TestPodAddresses(t *testing.T) {
	const cidr = "10.2.0.0/32"
	e := newEnv(t)
	op := e.start(quickMultiPool())
	e.pool("all", nil, "10.1.0.0/24")
	e.pool("singles", func(p *v1alpha1.PodIPPool) {
		p.Spec.CiliumPoolName, p.Spec.IPv4.BlockSize = "singles", 32
		p.Spec.PodAddresses = &v1alpha1.PodAddresses{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, ReleaseAfter: v1alpha1.Never}
	}, "10.2.0.0/30")
	for _, node := range []string{"n1", "n2"} {
		e.bareNode(node, nil)
		e.isAssigned(node, 1)
		e.AgentRequests(node, 16, 1)
	}
	olderThan(e, "n1", time.Second)

	pod := bindWeb(e, "n1")
	lists(e, "n1", "["+cidr+"]")
	e.pinIs(cidr, metav1.ConditionTrue, v1alpha1.PinHeld)
	e.Must(e.Client.Delete(e.Ctx, pod, client.GracePeriodSeconds(0)))
	op.stop()
	e.start(quickMultiPool())
	returnsWeb(e, "n1")
	e.pinIs(cidr, metav1.ConditionFalse, v1alpha1.PinNotClaimed)
	pod = bindWeb(e, "n2")
	lists(e, "n2", "["+cidr+"]")

	e.Must(e.Client.Delete(e.Ctx, pod, client.GracePeriodSeconds(0)))
	returnsWeb(e, "n2")
	e.pinIs(cidr, metav1.ConditionFalse, v1alpha1.PinNotClaimed)
	e.change("singles", func(p *v1alpha1.PodIPPool) { p.Spec.PodAddresses.ReleaseAfter = "1ms" })
	e.Eventually("the pin is gone", func() error {
		pins := &v1alpha1.PodIPPinList{}
		if err := e.Client.List(e.Ctx, pins); err != nil || len(pins.Items) == 0 {
			return err
		}
		return fmt.Errorf("%s is left", pins.Items[0].Name)
	})
	e.ciliumPool(podPool, "")
}

// The address of a virtual machine follows its pods, whose names are random, from node to node. Of two at once the second
// waits for the first.
func TestAddressOfLabel(t *testing.T) {
	const cidr, label = "10.2.0.0/32", "vm.kubevirt.io/name"
	e := newEnv(t)
	op := e.start(quickMultiPool())
	e.pool("all", nil, "10.1.0.0/24")
	e.pool("singles", func(p *v1alpha1.PodIPPool) {
		p.Spec.CiliumPoolName, p.Spec.IPv4.BlockSize = "singles", 32
		p.Spec.PodAddresses = &v1alpha1.PodAddresses{
			PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: label, Operator: metav1.LabelSelectorOpExists}}},
			OwnerLabel:  label, ReleaseAfter: v1alpha1.Never,
		}
	}, "10.2.0.0/30")
	for _, node := range []string{"n1", "n2"} {
		e.bareNode(node, nil)
		e.isAssigned(node, 1)
		e.AgentRequests(node, 16, 1)
	}
	olderThan(e, "n1", time.Second)
	launch := func(name, node string) *corev1.Pod {
		pod := harness.BoundPod(node, name, nil)
		pod.GenerateName, pod.Labels = "virt-launcher-db-", map[string]string{label: "db"}
		pod.Annotations = map[string]string{"ipam.cilium.io/require-pool-match": "true"}
		e.Create(pod)
		return pod
	}
	first := launch("virt-launcher-db-abcde", "n1")
	lists(e, "n1", "["+cidr+"]")
	e.ciliumPool("zz.db.default.vm.kubevirt.io.name.3-1.labels.cilium-pool.io", "[2001:db8::/128] 32")
	first.Status.PodIPs = []corev1.PodIP{{IP: "10.2.0.0"}}
	e.Must(e.Client.Status().Update(e.Ctx, first))

	launch("virt-launcher-db-fghjk", "n2")
	e.eventSays("virt-launcher-db-fghjk", event.ReasonAddressInUse, "pod default/virt-launcher-db-abcde on node n1 has it until it ends")
	e.never("the address is in two lists", func() bool { return podAddress(e.readCiliumNode("n2")) != "" })
	e.Must(e.Client.Delete(e.Ctx, first, client.GracePeriodSeconds(0)))
	op.stop()
	e.start(quickMultiPool())
	returnsWeb(e, "n1")
	lists(e, "n2", "["+cidr+"]")
	lists(e, "n1", "")
	e.pinIs(cidr, metav1.ConditionTrue, v1alpha1.PinHeld)
}
