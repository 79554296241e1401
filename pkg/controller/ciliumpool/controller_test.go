package ciliumpool

import (
	"strings"
	"testing"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	slimmetav1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// keeps lets the controller look at Cilium's pool of a name until it writes no more, and returns
// its writes.
func keeps(b *fakeapi.Cluster, name string, change func(*Reconciler)) []string {
	b.T.Helper()
	b.Calls = nil
	var writes []string
	for range 3 {
		b.Watch()
		r := &Reconciler{Live: b.API, Client: b.API, Ledger: b.Ledger, Pools: b.Pools, CiliumPools: b.CiliumPools(), Events: b.Events, Counters: b.Shared}
		if change != nil {
			change(r)
		}
		if _, err := r.Reconcile(b.T.Context(), fakeapi.RequestOf(name)); err != nil {
			b.T.Fatal(err)
		}
		writes, b.Calls = append(writes, b.Calls...), nil
	}
	return writes
}

func TestKeepsCiliumPools(t *testing.T) {
	serving := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	tests := map[string]struct {
		objects []client.Object
		pool    string
		change  func(*Reconciler)
		writes  string
		left    int // maskSize; 0: none
	}{
		"none yet":               {objects: []client.Object{serving}, writes: "create", left: 30},
		"of another name":        {objects: []client.Object{serving, fixtures.BluePool("10.8.0.0/28")}, pool: "blue", writes: "create", left: 30},
		"no PodIPPool serves it": {objects: []client.Object{serving}, pool: "blue"},
		"as it should be":        {objects: []client.Object{serving, fixtures.CiliumPodIPPool("default", 30)}, left: 30},
		"another size":           {objects: []client.Object{serving, fixtures.CiliumPodIPPool("default", 29)}, left: 29},
		"without the family":     {objects: []client.Object{serving, ofIPv6(fixtures.CiliumPodIPPool("default", 0))}, writes: "patch", left: 30},
		"kept by Helm":           {objects: []client.Object{serving, fixtures.HandMade(fixtures.CiliumPodIPPool("default", 27))}, left: 27},
		"another's, unserved":    {objects: []client.Object{fixtures.HandMade(fixtures.CiliumPodIPPool("blue", 27))}, pool: "blue", left: 27},
		"served no more":         {objects: []client.Object{fixtures.CiliumPodIPPool("blue", 30), fixtures.Pooled(2, "10.0.0.0/30")}, pool: "blue", writes: "delete"},
		"a node lists of it":     {objects: []client.Object{fixtures.CiliumPodIPPool("blue", 30), fixtures.Listing("10.8.0.0/30")}, pool: "blue", left: 30},
		"a pool that is going":   {objects: []client.Object{fixtures.BeingDeleted(fixtures.Finalized(fixtures.BluePool("10.8.0.0/28"))), fixtures.CiliumPodIPPool("blue", 30)}, pool: "blue", left: 30},
		"an address is pinned":   {objects: []client.Object{podPin()}, pool: podPool, writes: "create", left: 32},
		"pinned no more":         {objects: []client.Object{fixtures.CiliumPodIPPool(podPool, 31)}, pool: podPool, writes: "delete"},
		"under its old name":     {objects: []client.Object{podPin(), fixtures.CiliumPodIPPool(oldPodPool, 31)}, pool: oldPodPool, left: 31},
		"a second name":          {objects: []client.Object{podPin(), fixtures.CiliumPodIPPool(oldPodPool, 31)}, pool: podPool},
		"a second name is there": {objects: []client.Object{podPin(), fixtures.CiliumPodIPPool(oldPodPool, 31), fixtures.CiliumPodIPPool(podPool, 31)}, pool: podPool, writes: "delete"},
		"the old name is unused": {objects: []client.Object{podPin()}, pool: oldPodPool},
		"the old one is deleted": {objects: []client.Object{podPin(), ofOldPool()}, pool: oldPodPool, writes: "create", left: 32},
		"off":                    {objects: []client.Object{serving}, change: func(r *Reconciler) { r.Off = true }},
		"the kind is not known":  {objects: []client.Object{serving}, change: func(r *Reconciler) { r.CiliumPools = state.NewCiliumPools() }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b, pool := fakeapi.New(t, ciliumnode.MultiPool, test.objects...), "default"
			if test.pool != "" {
				pool = test.pool
			}
			writes := strings.Join(keeps(b, pool, test.change), ", ")
			if test.writes != "" {
				test.writes += " CiliumPodIPPool"
			}
			if writes != test.writes {
				t.Errorf("writes %q, want %q", writes, test.writes)
			}
			left := 0
			if is := b.CiliumPools().Get(pool); is != nil {
				left = is.MaskSize[ipalloc.IPv4]
			}
			if left != test.left {
				t.Errorf("left is one of maskSize %d, want %d", left, test.left)
			}
		})
	}
}

// podPool is the Cilium pool of a single pod, and podPin keeps an address for that pod.
const (
	podPool    = "zz.web-0.shop.pods.cilium-pool.io"
	oldPodPool = "web-0.shop.pod.cilium-pool.io"
)

func podPin() *v1alpha1.PodIPPin {
	pin := fixtures.Pin("10.0.0.4/32", "")
	pin.Spec.PodNamespace, pin.Spec.PodName = "shop", "web-0"
	return pin
}

// ofOldPool is the pod's block, claimed for the Cilium pool of the old name.
func ofOldPool() *v1alpha1.PodIPBlock {
	block := fixtures.BlockObject("10.0.0.4/32", ipalloc.InService)
	block.Spec.CiliumPoolName = oldPodPool
	return block
}

// The CiliumPodIPPool of a pod follows the labels that BGP selects by, of its pool's.
func TestCiliumPoolOfOwnerIsMarked(t *testing.T) {
	theirs := fixtures.HandMade(fixtures.CiliumPodIPPool("default", 28))
	theirs.Labels = map[string]string{"announce": "pods"}
	b := fakeapi.New(t, ciliumnode.MultiPool, podPin(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), theirs)
	keeps(b, podPool, nil)
	if is := b.CiliumPools().Get(podPool); is == nil || is.Marks.Labels["announce"] != "pods" || !is.Ours {
		t.Errorf("made is %+v", is)
	}
	theirs.Labels["announce"] = "none"
	if err := b.API.Update(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if writes := keeps(b, podPool, nil); len(writes) != 1 || b.CiliumPools().Get(podPool).Marks.Labels["announce"] != "none" {
		t.Errorf("writes %v", writes)
	}
}

// The CiliumPodIPPool of a pod selects it, and stays while a pin exists that the watch has not shown.
func TestCiliumPoolOfOwner(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.MultiPool, podPin())
	keeps(b, podPool, nil)
	if pod := b.CiliumPools().Get(podPool).Selector.Owner(); pod != "shop/web-0" {
		t.Errorf("it selects %q", pod)
	}
	b.Ledger.Pins.Remove(fixtures.Prefix("10.0.0.4/32"))
	r := &Reconciler{Live: b.API, Client: b.API, Ledger: b.Ledger, Pools: b.Pools, CiliumPools: b.CiliumPools(), Events: b.Events, Counters: b.Shared}
	if result, err := r.Reconcile(t.Context(), fakeapi.RequestOf(podPool)); err != nil || result.RequeueAfter == 0 || b.CiliumPools().Get(podPool) == nil {
		t.Errorf("%v, %v", result, err)
	}
}

// ofIPv6 has ranges of IPv6 too.
func ofIPv6(obj *ciliumv2alpha1.CiliumPodIPPool) *ciliumv2alpha1.CiliumPodIPPool {
	obj.Spec.IPv6 = &ciliumv2alpha1.IPv6PoolSpec{CIDRs: []ciliumv2alpha1.PoolCIDR{"fd00::/112"}, MaskSize: 122}
	return obj
}

// People's additions to one of ours stay.
func TestCiliumPoolKeepsWhatPeopleAdd(t *testing.T) {
	obj := ofIPv6(fixtures.CiliumPodIPPool("default", 0))
	obj.Labels["announce"] = "pods"
	obj.Annotations = map[string]string{"ipam.cilium.io/skip-masquerade": "true"}
	obj.Spec.PodSelector = &slimmetav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	b := fakeapi.New(t, ciliumnode.MultiPool, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), obj)
	keeps(b, "default", nil)
	got := &ciliumv2alpha1.CiliumPodIPPool{}
	if err := b.API.Get(t.Context(), client.ObjectKey{Name: "default"}, got); err != nil {
		t.Fatal(err)
	}
	if got.Spec.IPv4 == nil || got.Spec.IPv6 != nil || got.Labels["announce"] != "pods" || len(got.Annotations) != 1 || got.Spec.PodSelector.MatchLabels["app"] != "web" {
		t.Errorf("left is %+v", got)
	}
}

// A CiliumPodIPPool stays while a PodIPPool serves it that the watch has not shown, and so do
// people's additions to it.
func TestCiliumPoolServedUnseen(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.MultiPool, fixtures.BluePool("10.8.0.0/28"), fixtures.CiliumPodIPPool("blue", 30))
	b.Pools.Delete("blues")
	if writes := keeps(b, "blue", nil); len(writes) > 0 || b.CiliumPools().Get("blue") == nil {
		t.Errorf("writes %v", writes)
	}
}

// A write that loses is tried again, and is no error.
func TestCiliumPoolLosesARace(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.MultiPool, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	unseen := b.CiliumPools()
	keeps(b, "default", nil)
	r := &Reconciler{Live: b.API, Client: b.API, Ledger: b.Ledger, Pools: b.Pools, CiliumPools: unseen, Events: b.Events, Counters: b.Shared}
	result, err := r.Reconcile(t.Context(), fakeapi.RequestOf("default"))
	if err != nil || result.RequeueAfter != common.ConflictRetry {
		t.Errorf("%+v, %v", result, err)
	}
	// Where the kind is gone, the queue's backoff applies.
	b.Refuse = map[string]error{"create CiliumPodIPPool": apierrors.NewNotFound(schema.GroupResource{}, "")}
	if _, err := r.Reconcile(t.Context(), fakeapi.RequestOf("default")); err == nil {
		t.Error("a create without its kind is a lost race")
	}
}
