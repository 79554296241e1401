package integration

import (
	"fmt"
	"slices"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
)

func TestOverlappingPools(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("older", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.pool("younger", priority(10), "10.1.0.0/16", "10.9.0.0/26")
	e.condition("younger", v1alpha1.PoolOverlapping, metav1.ConditionTrue, poolcontroller.ReasonOverlapping, "older")
	e.event("younger", event.ReasonPoolOverlapping)
	e.condition("older", v1alpha1.PoolOverlapping, metav1.ConditionFalse, poolcontroller.ReasonSeparate)
	e.node("n2", nil)
	e.hasBlocks("n2", 1)
	if b := e.Blocks("n2")[0]; !blockIn(b, "10.9.0.0/26") {
		t.Errorf("n2 has %s, want one from the range that does not overlap", b.Spec.CIDR)
	}
	// The older pool takes over a range after the younger one has assigned a block of it.
	e.change("older", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.9.0.0/26"})
	})
	e.condition("younger", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonOverlapping)
	e.load("n2", "load", 20)
	if b := e.Blocks("n2")[0]; !blockIn(b, "10.9.0.0/26") || b.Spec.PoolName != "younger" || b.Status.Phase == v1alpha1.PhaseDraining {
		t.Errorf("n2 has %s of %s, %s; want its block of the younger pool", b.Spec.CIDR, b.Spec.PoolName, b.Status.Phase)
	}
}

// A value that contradicts the operator's flags is reported, and stops no node:
// neither in a pool that served before, nor after a restart with other flags.
func TestWrongMinFreeStopsNoNode(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Defaults.Policy.MaxAddresses = 128
	op := e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.Expand.MinFreeAddresses = ptr.To[int32](500) })
	e.condition("all", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonInvalid, "spec.expand.minFreeAddresses")
	e.event("all", event.ReasonPoolInvalid)
	e.load("n1", "load", 40)
	op.stop()
	s.Defaults.Policy.ReclaimPercent = 60
	e.start(s)
	e.load("n1", "more", 40)
}

// A size that the mode refuses is mended in the pool. A block that the status did not count when the
// size changed stays on its node, and nothing overlaps it.
func TestBlockSizeChanges(t *testing.T) {
	e := newEnv(t)
	op := e.start(quick())
	size := func(bits int32) func(*v1alpha1.PodIPPool) {
		return func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.BlockSize = bits }
	}
	e.pool("all", size(16), "10.1.0.0/16")
	e.node("n1", nil)
	e.condition("all", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonInvalid, "for blocks of 16 addresses write 28")
	e.change("all", size(27))
	e.hasBlocks("n1", 1)
	e.condition("all", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing, "/27 = 32 addresses")
	op.stop()
	e.eventuallyPool("its status counts no block", "all", func(p *v1alpha1.PodIPPool) error {
		p.Status.IPv4.Blocks.Held = 0
		return e.Client.Status().Update(e.Ctx, p)
	})
	e.change("all", size(28))
	e.start(quick())
	e.node("n2", nil)
	e.awaitBlocks("n2 has a block of the new size", "n2", 1, many, func(b v1alpha1.PodIPBlock) bool { return b.Spec.CIDR == "10.1.0.32/28" })
	e.load("n1", "load", 20)
	if b := e.Blocks("n1")[0]; b.Spec.CIDR != "10.1.0.0/27" || b.Status.Phase != v1alpha1.PhaseInService {
		t.Errorf("n1 has %s, %s; want its block of the old size in service", b.Spec.CIDR, b.Status.Phase)
	}
}

func TestBlockMadeByHandIsPinned(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", func(p *v1alpha1.PodIPPool) { p.Spec.Reclaim.Policy = v1alpha1.ReclaimNever }, "10.1.0.0/24")
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
	e := newServed(t)
	e.node("n1", nil)
	e.node("n2", nil)
	e.hasBlocks("n1", 1)
	e.hasBlocks("n2", 1)
	before := map[string]*ciliumv2.CiliumNode{"n1": e.readCiliumNode("n1"), "n2": e.readCiliumNode("n2")}
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
		after := e.readCiliumNode(name)
		if after.UID != cn.UID || !slices.Equal(after.Spec.IPAM.PodCIDRs[:1], cn.Spec.IPAM.PodCIDRs) {
			t.Errorf("podCIDRs of %s are %v, and were %v", name, after.Spec.IPAM.PodCIDRs, cn.Spec.IPAM.PodCIDRs)
		}
	}
}
