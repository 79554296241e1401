package chart

import (
	"fmt"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// In the other modes, too, neither roles nor policies refuse the operator's writes;
// TestRightsAreEnoughAndNoMore checks this for crd mode.
func TestNothingIsRefusedInMultiPoolMode(t *testing.T) {
	b := newBed(t, helm4)
	op := b.installMode("multi-pool", "--cooldown=30s", "--ack-timeout=1m") // so long a pod without an address counts
	b.node("n1", "beijing")
	b.isAssigned("n1", 1)
	b.AgentRequests("n1", 8, 1)
	b.Pods("n1", "many", 80)
	b.Eventually("the operator reports a shortage", func() error { return b.short("n1", true) })
	b.isAssigned("n1", 4)
	b.DropPods()
	b.AgentRequests("n1", 8, 1)
	b.Eventually("the operator reports the end of the shortage", func() error { return b.short("n1", false) })
	b.holds("n1", 1)
	b.Delete(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	b.isAssigned("n1", 1)
	b.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	b.holds("n1", 0)
	op.sawNothingRefused()
}

func TestNothingIsRefusedInKubernetesMode(t *testing.T) {
	b := newBed(t, helm4)
	op := b.installMode("kubernetes", "--ack-timeout=5m")
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		b.node(name, "beijing")
		b.isAnnotated(name)
	}
	b.node("n5", "beijing")
	b.AgentPod("n5") // without one, pods do not count
	b.Pods("n5", "one", 1)
	b.Eventually("the operator reports a shortage", func() error { return b.short("n5", true) })
	b.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	b.isAnnotated("n5")
	b.Eventually("the operator reports the end of the shortage", func() error { return b.short("n5", false) })
	op.sawNothingRefused()
}

func (p *running) sawNothingRefused() {
	p.b.Helper()
	p.stop()
	p.seesNothingForbidden()
	p.b.usedRights() // fails if a request was denied
}

// isAssigned waits until exactly the n blocks that a node holds are on the list of its agent.
func (b *bed) isAssigned(node string, n int) {
	b.Helper()
	b.Eventually(fmt.Sprintf("the agent of %s has %d blocks on its list", node, n), func() error {
		cn := &ciliumv2.CiliumNode{}
		if err := b.Client.Get(b.Context(), client.ObjectKey{Name: node}, cn); err != nil {
			return err
		}
		if listed := cn.Spec.IPAM.Pools.Allocated; len(listed) != 1 || len(listed[0].CIDRs) != n || len(b.Blocks(node)) != n {
			return fmt.Errorf("%d blocks, listed %v", len(b.Blocks(node)), listed)
		}
		return nil
	})
}

// isAnnotated waits until the annotation of a Node in kubernetes mode names a block.
func (b *bed) isAnnotated(node string) {
	b.Helper()
	b.Eventually("Node "+node+" is assigned a block", func() error {
		n := &corev1.Node{}
		if err := b.Client.Get(b.Context(), client.ObjectKey{Name: node}, n); err != nil {
			return err
		}
		if n.Annotations["network.cilium.io/ipv4-pod-cidr"] == "" {
			return fmt.Errorf("annotations are %v", n.Annotations)
		}
		return nil
	})
}

// holds waits until a node holds n blocks; if n is 0, also until its CiliumNode is gone.
func (b *bed) holds(node string, n int) {
	b.Helper()
	b.Eventually(fmt.Sprintf("%s holds %d blocks", node, n), func() error {
		if got := len(b.Blocks(node)); got != n {
			return fmt.Errorf("%d blocks", got)
		}
		err := b.Client.Get(b.Context(), client.ObjectKey{Name: node}, &ciliumv2.CiliumNode{})
		if n == 0 && !apierrors.IsNotFound(err) {
			return fmt.Errorf("CiliumNode: %v", err)
		}
		return nil
	})
}
