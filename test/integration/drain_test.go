package integration

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

func TestCIDRSetToDrainIsReplacedFirst(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24", "10.2.0.0/24")
	e.node("n1", nil)
	e.Pods("n1", "load", 40)
	e.running("load", 40)
	e.hasBlocks("n1", 2)
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain })
	e.Eventually("replacements are there", func() error {
		if in := e.blocksIn("n1", "10.2.0.0/24"); in < 2 {
			return fmt.Errorf("%d blocks in the other range", in)
		}
		return nil
	})
	// Both have waited for a replacement before. The agent may not have reported yet that this
	// block contains the router's address.
	e.eventSays("n1", event.ReasonDrainWaits, "block 10.1.0.0/27 waits for AgentRestart: ")
	e.eventSays("n1", event.ReasonDrainWaits, "block 10.1.0.32/27 waits for Pods: pods default/load-n1-")
	e.DeletePods("load", nil)
	e.Eventually("only the router's block is left in the draining range", func() error {
		if in := e.blocksIn("n1", "10.1.0.0/24"); in > 1 {
			return fmt.Errorf("%d blocks are", in)
		}
		return nil
	})
	e.usedArePublished("n1")
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationAllocate })
	e.Eventually("a drain that is no longer requested ends", func() error {
		for _, b := range e.Blocks("n1") {
			if blockIn(b, "10.1.0.0/24") && len(b.Status.Conditions) > 0 {
				return fmt.Errorf("%s: %v", b.Name, b.Status.Conditions)
			}
		}
		return nil
	})
}

// A node keeps its blocks of a cordoned range, including blocks with an undone drain; further
// blocks come from other ranges.
func TestCordonedCIDRGivesNoNewBlocks(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Defaults.Policy.IdleFor = time.Hour
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24", "10.2.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	set := func(policy v1alpha1.AllocationPolicy) {
		e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = policy })
	}
	// The block has a replacement, and drains until the agent's own address is gone.
	set(v1alpha1.AllocationDrain)
	e.Eventually("the first block drains", func() error { return e.draining("10.1.0.0-27", true) })
	set(v1alpha1.AllocationCordon)
	e.Eventually("the drain ends with the request for it", func() error { return e.draining("10.1.0.0-27", false) })
	e.Pods("n1", "load", 70)
	e.running("load", 70)
	e.node("n2", nil)
	e.hasBlocks("n2", 1)
	for _, b := range e.Blocks("") {
		if blockIn(b, "10.1.0.0/24") && b.Name != "10.1.0.0-27" {
			t.Errorf("block %s was claimed for %s from a cordoned range", b.Name, b.Spec.NodeName)
		}
	}
	if err := e.draining("10.1.0.0-27", false); err != nil {
		t.Error(err)
	}
	set(v1alpha1.AllocationAllocate)
	e.Pods("n1", "more", 60)
	e.running("more", 60)
	if !slices.ContainsFunc(e.Blocks("n1"), func(b v1alpha1.PodIPBlock) bool {
		return blockIn(b, "10.1.0.0/24") && b.Name != "10.1.0.0-27"
	}) {
		t.Error("nothing was claimed from the range after Allocate")
	}
}

// draining returns an error unless the block drains for that reason.
func (e *env) draining(block string, want bool) error {
	b := &v1alpha1.PodIPBlock{}
	if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: block}, b); err != nil {
		return err
	}
	if got := meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockDraining); got != want {
		return fmt.Errorf("%s drains: %v, want %v", block, got, want)
	}
	return nil
}

func TestBlockDeletedByHandDrains(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.Pods("n1", "load", 40)
	e.running("load", 40)
	e.hasBlocks("n1", 2)
	router := ""
	cn := e.theCiliumNode("n1")
	for _, a := range cn.Spec.Addresses {
		if a.Type == "CiliumInternalIP" {
			router = a.IP
		}
	}
	var target v1alpha1.PodIPBlock
	for _, b := range e.Blocks("n1") {
		if !netip.MustParsePrefix(b.Spec.CIDR).Contains(netip.MustParseAddr(router)) {
			target = b
		}
	}
	e.Delete(&target)
	e.Eventually("the block drains, with a replacement", func() error {
		b := &v1alpha1.PodIPBlock{}
		if err := e.Client.Get(e.Ctx, client.ObjectKeyFromObject(&target), b); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockDraining) {
			return fmt.Errorf("conditions are %v", b.Status.Conditions)
		}
		if n := len(e.Blocks("n1")); n != 3 {
			return fmt.Errorf("%d blocks", n)
		}
		return nil
	})
	e.usedArePublished("n1")
	e.DeletePods("load", nil)
	e.Gone(&target)
}

func TestDeletedPoolWaitsForItsBlocks(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	p := e.pool("old", priority(10), "10.1.0.0/24")
	e.pool("new", nil, "10.2.0.0/24")
	a := e.node("n1", nil)
	e.ready(a)
	e.condition("old", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing)
	e.Delete(p)
	if m := e.condition("old", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonDeleting); !strings.Contains(m, "n1") {
		t.Errorf("the message names no node: %s", m)
	}
	e.Eventually("a replacement from the other pool", func() error {
		for _, b := range e.Blocks("n1") {
			if b.Spec.PoolName == "new" {
				return nil
			}
		}
		return fmt.Errorf("none")
	})
	e.usedArePublished("n1")
	// The router's address keeps the old block until the node is deleted.
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	e.Delete(n)
	e.Gone(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "old"}})
}

// A pool that is phased out reports the number of blocks left, and finally that it can be deleted.
// It is never reported as exhausted.
func TestPoolPhasedOut(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("old", priority(10), "10.1.0.0/27")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.pool("new", nil, "10.2.0.0/24")
	e.condition("new", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing)
	drain := func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain }
	e.change("new", drain) // so that no pool can take over the node
	e.condition("new", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonEmpty)
	e.change("old", drain)
	m := e.condition("old", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonPhasingOut)
	if !strings.Contains(m, "left: 1, on n1") {
		t.Errorf("the message says %q", m)
	}
	e.condition("old", v1alpha1.PoolExhausted, metav1.ConditionFalse, poolcontroller.ReasonPhasingOut)
	e.eventSays("n1", event.ReasonPodAddressShortage, "no pool that serves this node")
	e.change("new", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationAllocate })
	e.Eventually("node n1 holds a block of pool new", func() error {
		for _, b := range e.Blocks("n1") {
			if b.Spec.PoolName == "new" {
				return nil
			}
		}
		return fmt.Errorf("blocks are %v", e.Blocks("n1"))
	})
	// The addresses of the pool's agent stay until the Node is deleted.
	e.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	e.condition("old", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonEmpty)
	e.event("old", event.ReasonPoolEmpty)
}
