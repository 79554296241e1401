package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// A gateway inside a block would be unreachable from every other node, so no node
// gets the block. One that a node held before is reported until it has left, and is
// not assigned again.
func TestReservedInsideABlock(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.1.0.5/32", Reason: "gateway of rack 1"}}
	}, "10.1.0.0/25")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.blockIs("n1", "10.1.0.32/27")

	e.change("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.Reserved = append(p.Spec.Reserved, v1alpha1.ReservedCIDR{CIDR: "10.1.0.48/28", Reason: "gateways of rack 2"})
	})
	held := e.condition("all", v1alpha1.PoolReservedHeld, metav1.ConditionTrue, controller.ReasonHeldBefore)
	if !strings.Contains(held, "block 10.1.0.32/27 of node n1 overlaps reserved 10.1.0.48/28 (gateways of rack 2)") {
		t.Errorf("the message does not name the block: %s", held)
	}
	e.event("all", controller.EventReservedBlocksHeld)
	e.usedArePublished("n1")

	if err := e.client.Delete(e.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	e.condition("all", v1alpha1.PoolReservedHeld, metav1.ConditionFalse, controller.ReasonNoneSkipped)
	e.eventually("the block is gone", func() error {
		if n := len(e.blocks("")); n > 0 {
			return fmt.Errorf("%d blocks are left", n)
		}
		return nil
	})
	e.node("n2", nil)
	e.hasBlocks("n2", 1)
	e.blockIs("n2", "10.1.0.64/27")
}

// blockIs fails where a node's only block is another one.
func (e *env) blockIs(node, want string) {
	e.t.Helper()
	if blocks := e.blocks(node); len(blocks) != 1 || blocks[0].Spec.CIDR != want {
		e.t.Fatalf("node %s has %v, want %s", node, blocks, want)
	}
}
