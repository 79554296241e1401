package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
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
	e.Must(e.Client.Delete(e.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}))
	e.awaitBlocks("the Node is gone, and its blocks with it", "n1", 0, 0, nil)
	e.pinIs(cidr, metav1.ConditionFalse, v1alpha1.PinWaitsForNode)
	e.load("n2", "more", 40)
	e.awaitBlocks("the other node grows elsewhere", "n2", 2, many, inCIDR("10.2.0.0/26"))
	e.awaitBlocks("and never has the pinned block", "n2", 0, 0, inCIDR(cidr))
	e.bareNode("n1", nil)
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
