package pool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// starving is a Node with some pods that wait for a block.
func starving(name string, status corev1.ConditionStatus, reason string) *corev1.Node {
	n := fixtures.Node()
	n.Name, n.UID = name, types.UID(name)
	n.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeAddressShortage, Status: status, Reason: reason}}
	return n
}

// A pool without a free block is Ready while its nodes are served, by any pool, and names the
// blocks that come back to it and the pool that takes over.
func TestFullPool(t *testing.T) {
	full := fixtures.PodIPPool("p", 1, "10.0.0.0/30")
	cordoned := withPolicy(fixtures.PodIPPool("p", 1, "10.0.0.0/29"), v1alpha1.AllocationCordon)
	overflow := fixtures.PodIPPool("overflow", 0, "10.9.0.0/24")
	elsewhere := fixtures.PodIPPool("elsewhere", 0, "10.8.0.0/24")
	elsewhere.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "east"}}
	paused := fixtures.PodIPPool("paused", 0, "10.7.0.0/24")
	paused.Spec.Paused = new(true)
	held := crd.NewBlock(fixtures.Prefix("10.0.0.0/30"), "p", "n", "")
	cooling := crd.NewBlock(fixtures.Prefix("10.0.0.0/30"), "p", "n", "")
	crd.SetBlockPhase(cooling, ipalloc.CoolingDown, expand.Returned, "", fixtures.Noon())
	served, short := starving("n", corev1.ConditionFalse, "EnoughAddresses"), starving("n", corev1.ConditionTrue, v1alpha1.NodePoolsExhausted)
	atLimit := starving("n", corev1.ConditionTrue, "LimitReached")
	tests := map[string]struct {
		objects []client.Object
		ready   string // the reason of Ready; NodesShort: it is False
		says    string // of the message of Exhausted, or of Ready if that is False
	}{
		"another pool takes over":            {[]client.Object{full, held, served, overflow, elsewhere}, ReasonServing, "no block cools down. Nodes that need another block take one of pool overflow, if it has one. Add a CIDR"},
		"the other pool is not for the node": {[]client.Object{full, held, served, elsewhere}, ReasonServing, "No other pool serves its nodes"},
		"the other pool is paused":           {[]client.Object{full, held, served, paused}, ReasonServing, "No other pool serves its nodes"},
		"nobody holds the block any more":    {[]client.Object{full, cooling, served}, ReasonServing, "one block cools down, and is free again at 2026-01-01T12:01:00Z at the earliest"},
		"another node's CiliumNode lists it": {[]client.Object{full, served, fixtures.CiliumNode("m", "1", "10.0.0.0/24")}, ReasonServing, "no block cools down. CiliumNode m withholds 1 of its blocks, by what it names outside the blocks of its node. Add"},
		"pods wait":                          {[]client.Object{full, held, short}, ReasonNodesShort, "pods wait on n, and no pool that selects these nodes has a free block: see"},
		"pods wait for a limit":              {[]client.Object{full, held, atLimit}, ReasonServing, "no free block left"},
		"pods wait in another zone": {[]client.Object{fixtures.Edited(full, func(s *v1alpha1.PodIPPoolSpec) {
			s.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "east"}}
		}), held, short},
			ReasonSelectsNoNode, "no free block left for ipv4; no block cools down. Add"},
		"cordoned, and pods wait": {[]client.Object{cordoned, held, short}, ReasonNodesShort, "This pool assigns none of a family, as all its CIDRs are cordoned or drain"},
		"cordoned":                {[]client.Object{cordoned, held, served}, ReasonPhasingOut, "the pool assigns no new blocks"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, test.objects...)
			var again time.Duration
			for range 3 { // the finalizer, the status, and rest
				b.Watch()
				b.Calls = nil
				result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("p"))
				if err != nil {
					t.Fatal(err)
				}
				again = result.RequeueAfter
			}
			if len(b.Calls) > 0 || again == 0 || again > servedEvery {
				t.Errorf("at rest it calls %v, and looks again after %s", b.Calls, again)
			}
			obj := &v1alpha1.PodIPPool{}
			if err := b.API.Get(t.Context(), types.NamespacedName{Name: "p"}, obj); err != nil {
				t.Fatal(err)
			}
			ready, exhausted := obj.Status.Conditions[0], meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PoolExhausted)
			says := exhausted.Message
			if test.ready == ReasonNodesShort {
				says = ready.Message
			}
			if ready.Reason != test.ready || (ready.Status == "False") != (test.ready == ReasonNodesShort) || !strings.Contains(says, test.says) {
				t.Errorf("Ready is %s, %s: %s; Exhausted is %s: %s", ready.Status, ready.Reason, ready.Message, exhausted.Status, exhausted.Message)
			}
			if events := b.EventsOf(event.ReasonPoolExhausted); len(events) > 1 || len(events) == 1 && !strings.Contains(events[0], exhausted.Message) {
				t.Errorf("events %q", events)
			}
		})
	}
}

// Nodes with waiting pods of a full pool are one event of the pool, which names a few of them and counts none.
func TestWaitingNodesAreOneEvent(t *testing.T) {
	objects := []client.Object{fixtures.PodIPPool("p", 1, "10.0.0.0/30"), crd.NewBlock(fixtures.Prefix("10.0.0.0/30"), "p", "n", "")}
	for i := range 7 {
		objects = append(objects, starving(fmt.Sprint("n", i), corev1.ConditionTrue, v1alpha1.NodePoolsExhausted))
	}
	b := newBed(t, objects...)
	for range 3 {
		b.Watch()
		if _, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("p")); err != nil {
			t.Fatal(err)
		}
	}
	const want = "pods wait on n0, n1, n2, n3, n4 and others, and no pool that selects these nodes has a free block: see the condition Exhausted. no free block left for ipv4;"
	if events := b.EventsOf(event.ReasonPodAddressShortage); len(events) != 1 || !strings.Contains(events[0], want) {
		t.Errorf("events %q, want one with %q", events, want)
	}
}

// A pool with the ranges of an older one waits for it: another CIDR is no remedy.
func TestClosedPoolIsNotExhausted(t *testing.T) {
	b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/30"), fixtures.PodIPPool("older", 0, "10.0.0.0/29"))
	for range 2 { // the finalizer, and the status
		b.Watch()
		if _, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("p")); err != nil {
			t.Fatal(err)
		}
	}
	pool := &v1alpha1.PodIPPool{}
	if err := b.API.Get(t.Context(), client.ObjectKey{Name: "p"}, pool); err != nil {
		t.Fatal(err)
	}
	is := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.PoolExhausted)
	if is == nil || is.Status != metav1.ConditionFalse || is.Reason != ReasonOverlapping {
		t.Errorf("Exhausted is %+v", is)
	}
	want := map[string]float64{"cilium_pool_pool_phasing_out ipv4 p": 1} // no alert says that it is full
	if diff := cmp.Diff(want, fakeapi.Series(t, b.r.Metrics.phasing)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}
