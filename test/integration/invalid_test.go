package integration

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

func TestOverlappingPools(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("older", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.pool("younger", priority(10), "10.1.0.0/16", "10.9.0.0/26")
	if m := e.condition("younger", v1alpha1.PoolOverlapping, metav1.ConditionTrue, poolcontroller.ReasonOverlapping); !strings.Contains(m, "older") {
		t.Errorf("the message names no winner: %s", m)
	}
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
	e.Pods("n2", "load", 20)
	e.running("load", 20)
	if b := e.Blocks("n2")[0]; !blockIn(b, "10.9.0.0/26") || b.Spec.PoolName != "younger" || b.Status.Phase != v1alpha1.PhaseInService {
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
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.Expand.MinFree = ptr.To[int32](500) })
	if m := e.condition("all", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonInvalid); !strings.Contains(m, "spec.expand.minFree") {
		t.Errorf("the message names no field: %s", m)
	}
	e.event("all", event.ReasonPoolInvalid)
	e.Pods("n1", "load", 40)
	e.running("load", 40)
	op.stop()
	s.Defaults.Policy.ReclaimPercent = 60
	e.start(s)
	e.Pods("n1", "more", 40)
	e.running("more", 40)
}

// A new pool that outranks the others but has an invalid spec takes no addresses from any
// node.
func TestNewInvalidPoolFreezesNoNode(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Defaults.Policy.MaxAddresses = 128
	e.start(s)
	e.pool("good", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.pool("strict", func(p *v1alpha1.PodIPPool) {
		p.Spec.Priority, p.Spec.Expand.MinFree = 10, ptr.To[int32](500)
	}, "10.2.0.0/24")
	e.condition("strict", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonInvalid)
	// Another pool assigns all CIDRs of this one.
	e.pool("overlapped", priority(20), "10.1.0.0/25")
	e.condition("overlapped", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonOverlapping)
	e.Pods("n1", "load", 60)
	e.running("load", 60)
	e.node("n2", nil)
	e.Eventually("n2 has blocks", func() error {
		if len(e.Blocks("n2")) == 0 {
			return errors.New("it has none")
		}
		return nil
	})
	for _, b := range e.Blocks("") {
		if b.Spec.PoolName == "overlapped" {
			t.Errorf("block %s is of pool overlapped", b.Spec.CIDR)
		}
	}
}
