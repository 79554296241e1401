package pool

import (
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestPoolReportsFamiliesServed(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.DualStack(), fixtures.IPv4Agent(), fixtures.BlockObject("10.0.0.0/29", ipalloc.InService))
	condition := func() *metav1.Condition {
		t.Helper()
		for range 3 {
			if _, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("p")); err != nil {
				t.Fatal(err)
			}
		}
		p := &v1alpha1.PodIPPool{}
		if err := b.API.Get(t.Context(), fakeapi.RequestOf("p").NamespacedName, p); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolFamiliesServed)
	}
	if c := condition(); c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "the agents of n do not run ipv6") {
		t.Errorf("condition is %+v", c)
	}
	if got := b.EventsOf(event.ReasonFamilyNotRun); len(got) != 1 {
		t.Errorf("events %q, want one", got)
	}
	both := fixtures.IPv4Agent()
	both.ResourceVersion = fakeapi.Latest
	both.Spec.Addresses = append(both.Spec.Addresses, ciliumv2.NodeAddress{Type: "CiliumInternalIP", IP: "fd00::1"})
	b.Ledger.UpsertCiliumNode(b.Mode.View(both))
	if c := condition(); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("condition is %+v once the agent runs both", c)
	}
}
