package pool

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestCiliumPoolCondition(t *testing.T) {
	edited := ciliumpool.New("default", [2]int{30, 0}, ciliumpool.Marks{})
	edited.Spec.IPv4.CIDRs = append(edited.Spec.IPv4.CIDRs, "10.200.0.0/16")
	added := ciliumpool.Read(edited)
	six := &ciliumpool.View{Name: "default", Ours: true, MaskSize: [2]int{ipalloc.IPv6: 122}}
	tests := map[string]struct {
		is     *ciliumpool.View
		many   bool // agents have several Cilium pools
		status metav1.ConditionStatus
		reason string
	}{
		"another mode":   {status: metav1.ConditionTrue, reason: ReasonNotApplicable},
		"none":           {many: true, status: metav1.ConditionFalse, reason: ReasonMissing},
		"ours":           {ciliumpool.Read(fixtures.CiliumPodIPPool("default", 30)), true, metav1.ConditionTrue, ReasonKept},
		"another's":      {ciliumpool.Read(fixtures.HandMade(fixtures.CiliumPodIPPool("default", 30))), true, metav1.ConditionTrue, ReasonHandMade},
		"CIDRs added":    {added, true, metav1.ConditionFalse, ReasonCIDRsUnused},
		"another size":   {ciliumpool.Read(fixtures.CiliumPodIPPool("default", 29)), true, metav1.ConditionFalse, ReasonOtherSize},
		"another family": {six, true, metav1.ConditionFalse, ReasonOtherFamily},
		"of another":     {ciliumpool.Read(fixtures.CiliumPodIPPool("blue", 30)), true, metav1.ConditionFalse, ReasonMissing},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			obj := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
			obj.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolCiliumPool, Reason: "Old", Status: metav1.ConditionUnknown}}
			r := &Reconciler{CiliumPools: state.NewCiliumPools()}
			pool := *fixtures.PoolOf(t, obj)
			pool.WholeBlocks = test.many
			if test.is != nil {
				r.CiliumPools.Set(test.is)
			}
			setCondition(obj, v1alpha1.PoolCiliumPool, r.ciliumPoolCondition(&pool), fixtures.Noon())
			c := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PoolCiliumPool)
			if c.Reason != test.reason || c.Status != test.status {
				t.Errorf("it is %s %s: %s", c.Status, c.Reason, c.Message)
			}
		})
	}
}

// A pool is reported once if BGP does not advertise its blocks.
func TestUnfitCiliumPoolIsReported(t *testing.T) {
	six := ciliumpool.New("default", [2]int{ipalloc.IPv6: 122}, ciliumpool.Marks{})
	for name, is := range map[string]client.Object{"another size": fixtures.HandMade(fixtures.CiliumPodIPPool("default", 27)), "another family": fixtures.HandMade(six)} {
		t.Run(name, func(t *testing.T) {
			b := newBedIn(t, ciliumnode.MultiPool, fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28")), is)
			b.r.CiliumPools = b.CiliumPools()
			for range 2 {
				if _, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("p")); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(b.EventsOf(event.ReasonCiliumPodIPPoolUnfit)); n != 1 {
				t.Errorf("reported %d times", n)
			}
		})
	}
}
