package integration

import (
	"fmt"
	"slices"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

func TestBlockMadeByHandIsPinned(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", func(p *v1alpha1.PodIPPool) { p.Spec.Reclaim.Mode = v1alpha1.ReclaimNever }, "10.1.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.Create(&v1alpha1.PodIPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "10.1.0.192-27"},
		Spec:       v1alpha1.PodIPBlockSpec{CIDR: "10.1.0.192/27", PoolName: "all", NodeName: "n1"},
	})
	e.hasBlocks("n1", 2)
	e.Eventually("it has the finalizer", func() error {
		b := &v1alpha1.PodIPBlock{}
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: "10.1.0.192-27"}, b); err != nil {
			return err
		}
		if len(b.Finalizers) != 1 {
			return fmt.Errorf("finalizers are %v", b.Finalizers)
		}
		return nil
	})
}

// TestOverlappingBlockIsNeverPublished relies on the checker, which judges each version of both
// CiliumNodes meanwhile, so that no address of the block is published or listed even for a moment.
func TestOverlappingBlockIsNeverPublished(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.node("n2", nil)
	e.hasBlocks("n1", 1)
	e.hasBlocks("n2", 1)
	before := map[string]*ciliumv2.CiliumNode{"n1": e.theCiliumNode("n1"), "n2": e.theCiliumNode("n2")}
	made := e.breaks(1, "PodIPBlock 10.1.0.0-25", "made for node n2 while")
	gone := e.breaks(1, "PodIPBlock 10.1.0.0-25", "deleted while")
	e.Create(&v1alpha1.PodIPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "10.1.0.0-25"},
		Spec:       v1alpha1.PodIPBlockSpec{CIDR: "10.1.0.0/25", PoolName: "all", NodeName: "n2"},
	})
	made()
	e.event("10.1.0.0-25", event.ReasonBlockConflict)
	e.Pods("n2", "load", 40) // more than its block holds
	e.Gone(&v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: "10.1.0.0-25"}})
	gone()
	e.running("load", 40)
	e.hasBlocks("n1", 1)
	e.hasBlocks("n2", 2)
	for name, cn := range before {
		after := e.theCiliumNode(name)
		if after.UID != cn.UID || !slices.Equal(after.Spec.IPAM.PodCIDRs[:1], cn.Spec.IPAM.PodCIDRs) {
			t.Errorf("podCIDRs of %s are %v, and were %v", name, after.Spec.IPAM.PodCIDRs, cn.Spec.IPAM.PodCIDRs)
		}
	}
}
