package controller

import (
	"strings"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// dualStack is a pool of both families.
func dualStack() *v1alpha1.PodIPPool {
	p := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/120"}}}
	return p
}

// ipv4Agent is the CiliumNode of a node whose agent runs IPv4 alone.
func ipv4Agent() *ciliumv2.CiliumNode {
	cn := publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6")
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: "10.0.0.1"}}
	cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1")
	return cn
}

func TestFamilyNotRunIsNotClaimed(t *testing.T) {
	b := newBed(t, fixtures.Node(), dualStack(), ipv4Agent(), fixtures.BlockObject("10.0.0.0/29", ipalloc.InService))
	b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
	b.clock.SetTime(fixtures.Noon().Add(time.Hour))
	b.settle()
	if len(b.blocks()) != 1 {
		t.Errorf("blocks are %+v, want the IPv4 one alone", b.blocks())
	}
	if got := b.eventsOf(EventFamilyNotRun); len(got) != 1 || !strings.Contains(got[0], "the agent does not run ipv6, which pool p has") {
		t.Errorf("events %q, want one that names family and pool", got)
	}

	// It starts anew. It may run IPv6 from now on, and wait for addresses; or just be
	// slow. Only the one that does not come up for long is taken for waiting.
	b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "d", false)), b.clock.Now())
	b.settle()
	if len(b.blocks()) != 1 {
		t.Errorf("blocks are %+v a moment after the agent started, want the IPv4 one alone", b.blocks())
	}
	result, err := b.r.Reconcile(t.Context(), requestOf("n"))
	if err != nil || result.RequeueAfter != time.Minute {
		t.Errorf("the node is looked at again after %s, %v; want when the agent has been down for a minute", result.RequeueAfter, err)
	}
	b.clock.SetTime(b.clock.Now().Add(time.Minute))
	b.settle()
	if !b.has("fd00::/126") {
		t.Errorf("blocks are %+v, want an IPv6 one, for which the agent waits", b.blocks())
	}
	b.check("at the end")
}

func TestPoolTellsOfFamilyNotRun(t *testing.T) {
	b := newBed(t, fixtures.Node(), dualStack(), ipv4Agent(), fixtures.BlockObject("10.0.0.0/29", ipalloc.InService))
	r := &PoolReconciler{Cache: b.api, Live: b.api, Client: b.api, Ledger: b.r.Ledger, Pools: b.r.Pools, Events: b.r.Events, Metrics: b.r.Metrics, Clock: b.clock}
	condition := func() *metav1.Condition {
		t.Helper()
		for range 3 {
			if _, err := r.Reconcile(t.Context(), requestOf("p")); err != nil {
				t.Fatal(err)
			}
		}
		p := &v1alpha1.PodIPPool{}
		if err := b.api.Get(t.Context(), requestOf("p").NamespacedName, p); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolFamilyNotRun)
	}
	if c := condition(); c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "the agents of n do not run ipv6") {
		t.Errorf("condition is %+v", c)
	}
	if got := b.eventsOf(EventFamilyNotRun); len(got) != 1 {
		t.Errorf("events %q, want one", got)
	}
	both := ipv4Agent()
	both.ResourceVersion = latest
	both.Spec.Addresses = append(both.Spec.Addresses, ciliumv2.NodeAddress{Type: "CiliumInternalIP", IP: "fd00::1"})
	b.r.Ledger.UpsertCiliumNode(b.mode.ToStored(both))
	if c := condition(); c == nil || c.Status != metav1.ConditionFalse {
		t.Errorf("condition is %+v once the agent runs both", c)
	}
}
