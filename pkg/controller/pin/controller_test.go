package pin

import (
	"cmp"
	"errors"
	"net/netip"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func ofPool(change func(*v1alpha1.PodIPPoolSpec)) *v1alpha1.PodIPPool {
	return fixtures.Edited(fixtures.PodIPPool("p", 1, "10.0.0.0/28"), change)
}

// podPin keeps an address for a pod.
func podPin() *v1alpha1.PodIPPin {
	pin := fixtures.Pin("10.0.0.4/32", "")
	pin.Spec.PodNamespace, pin.Spec.PodName = "shop", "web-0"
	return pin
}

// A pin says whether its node holds the block, or why not, and is written once for each turn.
func TestPinReady(t *testing.T) {
	pin, node := fixtures.Pin("10.0.0.4/30", "n"), fixtures.Node()
	pool := ofPool(func(*v1alpha1.PodIPPoolSpec) {})
	single := ofPool(func(s *v1alpha1.PodIPPoolSpec) { s.IPv4.BlockSize = 32 })
	ofPod := fixtures.BlockObject("10.0.0.4/32", ipalloc.InService)
	ofPod.Spec.CiliumPoolName = crd.CiliumPoolOfOwner("shop/web-0")
	deleted := fixtures.BeingDeleted(pool.DeepCopy())
	deleted.Finalizers = []string{v1alpha1.Finalizer}
	for name, test := range map[string]struct {
		objects []client.Object
		given   func(*fakeapi.Cluster)
		mode    ciliumnode.Mode // "": CRD
		want    string
	}{
		"for a pod": {
			objects: []client.Object{podPin(), single}, mode: ciliumnode.MultiPool,
			want: "False NotClaimed: no node holds it for pod shop/web-0: none is bound, or the node has not claimed the address yet",
		},
		"for a pod, held": {
			objects: []client.Object{podPin(), single, ofPod}, mode: ciliumnode.MultiPool,
			want: "True Held: node n holds the block",
		},
		"for a pod, held for others": {
			objects: []client.Object{podPin(), single, fixtures.BlockObject("10.0.0.4/32", ipalloc.InService)}, mode: ciliumnode.MultiPool,
			want: "False HeldByNode: node n holds it; to move it: kubectl cilium-pool drain 10.0.0.4-32",
		},
		"for a pod, in crd mode": {
			objects: []client.Object{podPin(), pool},
			want:    "False NotAllocated: pins for pods need multi-pool or delegated-plugin mode: in this mode agents have no pool for a single owner",
		},
		"held":      {objects: []client.Object{pin, node, pool, fixtures.BlockObject("10.0.0.4/30", ipalloc.InService)}, want: "True Held: node n holds the block"},
		"draining":  {objects: []client.Object{pin, node, pool, fixtures.BlockObject("10.0.0.4/30", ipalloc.Draining)}, want: "False Draining: node n returns the block: kubectl describe podipblock 10.0.0.4-30"},
		"no node":   {objects: []client.Object{pin, pool}, want: "False WaitsForNode: there is no Node n yet: the block is kept for it"},
		"unclaimed": {objects: []client.Object{pin, node, pool}, want: "False NotClaimed: node n has not claimed it yet"},
		"held by another node": {
			objects: []client.Object{fixtures.Pin("10.0.0.4/30", "m"), pool, fixtures.BlockObject("10.0.0.4/30", ipalloc.InService)},
			want:    "False HeldByNode: node n holds it; to move it: kubectl cilium-pool drain 10.0.0.4-30",
		},
		"part of a block of another node": {
			objects: []client.Object{fixtures.Pin("10.0.0.4/30", "m"), pool, fixtures.BlockObject("10.0.0.0/29", ipalloc.InService)},
			want:    "False HeldByNode: node n holds it; to move it: kubectl cilium-pool drain 10.0.0.0-29",
		},
		"no pool":       {objects: []client.Object{fixtures.Pin("10.9.0.4/30", "n"), node, pool}, want: "False NotInPool: no valid PodIPPool has 10.9.0.4/30 in its cidrs: add the CIDR to one, or delete this pin and name a block of a pool"},
		"wrong size":    {objects: []client.Object{fixtures.Pin("10.0.0.0/29", "n"), node, pool}, want: "False NotABlock: blocks of PodIPPool p have blockSize 30 (/30 = 4 addresses): pin each of them by itself"},
		"wider than it": {objects: []client.Object{fixtures.Pin("10.0.0.0/24", "n"), node, pool}, want: "False NotABlock: blocks of PodIPPool p have blockSize 30 (/30 = 4 addresses): pin each of them by itself"},
		"not selected": {
			objects: []client.Object{pin, node, ofPool(func(s *v1alpha1.PodIPPoolSpec) { s.NodeSelector = fixtures.ZonedPool().Spec.NodeSelector })},
			want:    "False PoolDoesNotSelect: spec.nodeSelector of PodIPPool p does not match the labels of Node n",
		},
		"drains": {
			objects: []client.Object{pin, node, ofPool(func(s *v1alpha1.PodIPPoolSpec) { s.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain })},
			want:    "False NotAllocated: PodIPPool p gives it to no node: 10.0.0.0/28 has allocationPolicy Drain",
		},
		"reserved": {
			objects: []client.Object{pin, node, ofPool(func(s *v1alpha1.PodIPPoolSpec) { s.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.4/30"}} })},
			want:    "False NotAllocated: PodIPPool p gives it to no node: addresses of the block are reserved (spec.reserved)",
		},
		"paused": {
			objects: []client.Object{pin, node, ofPool(func(s *v1alpha1.PodIPPoolSpec) { s.Paused = new(true) })},
			want:    "False NotAllocated: PodIPPool p gives it to no node: it is paused (spec.paused)",
		},
		"deleted": {
			objects: []client.Object{pin, node, deleted},
			want:    "False NotAllocated: PodIPPool p gives it to no node: it is being deleted",
		},
		"invalid": {
			objects: []client.Object{pin, node, ofPool(func(s *v1alpha1.PodIPPoolSpec) {
				s.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "bad"}}}
			})},
			want: "False NotInPool: no valid PodIPPool has 10.0.0.4/30 in its cidrs: add the CIDR to one, or delete this pin and name a block of a pool",
		},
		"named by another": {
			objects: []client.Object{pin, node, pool},
			given: func(b *fakeapi.Cluster) {
				m := fixtures.CiliumNode("m", "")
				m.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.6")
				b.Ledger.UpsertCiliumNode(ciliumnode.NewView(m))
			},
			want: "False HeldByNode: the CiliumNode of another node names 10.0.0.6/32",
		},
		"of the cluster": {
			objects: []client.Object{pin, node, pool},
			given: func(b *fakeapi.Cluster) {
				b.Ledger.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "x"}, fixtures.Prefixes("10.0.0.5/32"))
			},
			want: "False NotAllocated: no node gets it: it covers 10.0.0.5 of Node x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			for _, o := range test.objects {
				objects = append(objects, o.DeepCopyObject().(client.Object))
			}
			b := fakeapi.New(t, cmp.Or(test.mode, ciliumnode.CRD), objects...)
			if test.given != nil {
				test.given(b)
			}
			r := &Reconciler{Cache: b.Cached(), Client: b.API, Ledger: b.Ledger, Pools: b.Pools, Events: b.Events, Counters: b.Shared, Clock: b.Clock}
			for _, paused := range []bool{true, false} {
				r.ReadOnly = paused
				result, err := r.Reconcile(t.Context(), fakeapi.RequestOf(objects[0].GetName()))
				if err != nil || result.RequeueAfter != 0 {
					t.Fatalf("%v, %v", result, err)
				}
			}
			obj := &v1alpha1.PodIPPin{}
			if err := b.API.Get(t.Context(), types.NamespacedName{Name: objects[0].GetName()}, obj); err != nil {
				t.Fatal(err)
			}
			is := obj.Status.Conditions[0]
			if got := string(is.Status) + " " + is.Reason + ": " + is.Message; got != test.want || is.Type != v1alpha1.PinReady || is.ObservedGeneration != obj.Generation {
				t.Errorf("GOT  %s (%+v)\nWANT %s", got, is, test.want)
			}
			if writes := len(b.Calls); writes != 1 {
				t.Errorf("writes %v", b.Calls)
			}
			if _, err := r.Reconcile(t.Context(), fakeapi.RequestOf(obj.Name)); err != nil || len(b.Calls) != 1 {
				t.Errorf("settled: %v, writes %v", err, b.Calls)
			}
		})
	}
}

// A refusal ends also if no write is left to do.
func TestPinRefused(t *testing.T) {
	pin := fixtures.Pin("10.0.0.4/30", "n")
	b := fakeapi.New(t, ciliumnode.CRD, pin, fixtures.Node(), ofPool(func(*v1alpha1.PodIPPoolSpec) {}))
	r := &Reconciler{Cache: b.Cached(), Client: b.API, Ledger: b.Ledger, Pools: b.Pools, Events: b.Events, Counters: b.Shared, Clock: b.Clock}
	service := exclude.Claimant{Kind: exclude.Service, Name: "x"}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "podippins"}, pin.Name, errors.New("by a policy"))
	for i, step := range []struct {
		excluded []netip.Prefix
		refuse   map[string]error
		reason   string
	}{
		{},
		{excluded: fixtures.Prefixes("10.0.0.5/32"), refuse: map[string]error{"update PodIPPin status": refused}, reason: config.ReasonWriteRefused},
		{reason: config.ReasonWriteAccepted},
	} {
		b.Ledger.Exclusions.Exclude(service, step.excluded)
		b.Refuse = step.refuse
		if _, err := r.Reconcile(t.Context(), fakeapi.RequestOf(pin.Name)); (err != nil) != (step.refuse != nil) {
			t.Errorf("step %d: error %v", i, err)
		}
		if step.reason != "" && len(b.EventsOf(step.reason)) != 1 {
			t.Errorf("step %d: no event %s", i, step.reason)
		}
	}
}

func TestPinIsGone(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.CRD)
	r := &Reconciler{Cache: b.Cached(), Client: b.API, Ledger: b.Ledger, Pools: b.Pools, Events: b.Events, Counters: b.Shared, Clock: b.Clock}
	if result, err := r.Reconcile(t.Context(), fakeapi.RequestOf("gone")); err != nil || result.RequeueAfter != 0 || len(b.Calls) > 0 {
		t.Errorf("%v, %v, writes %v", result, err, b.Calls)
	}
}
