package integration

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

func TestExhaustedPoolSpillsAndRecovers(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("first", priority(10), "10.1.0.0/27")
	e.pool("second", nil, "10.2.0.0/27")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.condition("first", v1alpha1.PoolExhausted, metav1.ConditionTrue, poolcontroller.ReasonExhausted)
	e.event("first", event.ReasonPoolExhausted)
	e.Pods("n1", "load", 45)
	e.running("load", 45)
	e.hasBlocks("n1", 2)
	e.eventSays("n1", event.ReasonBlockClaimed, "of pool second on node n1: claimed, as the node wants ")
	e.eventSays("n1", event.ReasonBlockClaimed, "; pool first, which comes first, has no block for it")
	e.condition("second", v1alpha1.PoolExhausted, metav1.ConditionTrue, poolcontroller.ReasonExhausted)
	for _, pool := range []string{"first", "second"} { // the node has enough addresses for its pods
		e.condition(pool, v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing)
	}

	e.Pods("n1", "more", 40) // 86 with the router, but there are 60 addresses
	e.shortage("n1", corev1.ConditionTrue)
	e.eventSays("n1", event.ReasonPodAddressShortage, ". Pool first (ipv4): no block cools down. Pool second (ipv4): no block cools down. Add a CIDR")
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
	e := newEnv(t)
	s := quick()
	s.ShortageTaint = shortageTaint
	e.start(s)
	e.pool("tiny", nil, "10.1.0.0/27")
	e.node("n1", nil)
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
	e.DeletePods("load", nil)
	tainted(false)
}
