package controller

import (
	"slices"
	"strings"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	slimmetav1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// keeps lets the controller look at Cilium's pool of a name until it writes
// nothing any more, and returns what it has written.
func (b *bed) keeps(name string, change func(*CiliumPoolReconciler)) []string {
	b.t.Helper()
	b.calls = nil
	var writes []string
	for range 3 {
		b.watch()
		r := &CiliumPoolReconciler{Live: b.api, Client: b.api, Ledger: b.r.Ledger, Pools: b.r.Pools, CiliumPools: b.ciliumPools(), Metrics: b.r.Metrics}
		if change != nil {
			change(r)
		}
		if _, err := r.Reconcile(b.t.Context(), requestOf(name)); err != nil {
			b.t.Fatal(err)
		}
		writes, b.calls = append(writes, b.calls...), nil
	}
	return writes
}

// ciliumPools are what a watch would have shown.
func (b *bed) ciliumPools() *state.CiliumPools {
	b.t.Helper()
	out, list := state.NewCiliumPools(), &ciliumv2alpha1.CiliumPodIPPoolList{}
	if err := b.api.List(b.t.Context(), list); err != nil {
		b.t.Fatal(err)
	}
	out.SetKnown()
	for i := range list.Items {
		out.Set(ciliumpool.Read(&list.Items[i]))
	}
	return out
}

// handMade is one that Helm keeps.
func handMade(obj *ciliumv2alpha1.CiliumPodIPPool) *ciliumv2alpha1.CiliumPodIPPool {
	obj.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	return obj
}

// listing is node n's CiliumNode, which lists a CIDR for Cilium's pool blue.
func listing(cidr string) *ciliumv2.CiliumNode {
	cn := fixtures.Pooled(2, "10.0.0.0/30")
	cn.Spec.IPAM.Pools.Allocated = slices.Insert(cn.Spec.IPAM.Pools.Allocated, 0, ipamtypes.IPAMPoolAllocation{Pool: "blue"})
	cn.Spec.IPAM.Pools.Allocated[0].CIDRs = append(cn.Spec.IPAM.Pools.Allocated[0].CIDRs, fixtures.PodCIDR(cidr))
	return cn
}

func TestKeepsCiliumPools(t *testing.T) {
	serving := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	tests := map[string]struct {
		objects []client.Object
		pool    string
		change  func(*CiliumPoolReconciler)
		writes  string
		left    int // maskSize; 0: none
	}{
		"none yet":               {objects: []client.Object{serving}, writes: "create", left: 30},
		"of another name":        {objects: []client.Object{serving, bluePool("10.8.0.0/28")}, pool: "blue", writes: "create", left: 30},
		"no PodIPPool serves it": {objects: []client.Object{serving}, pool: "blue"},
		"as it should be":        {objects: []client.Object{serving, fixtures.CiliumPodIPPool("default", 30)}, left: 30},
		"another size":           {objects: []client.Object{serving, fixtures.CiliumPodIPPool("default", 29)}, left: 29},
		"without the family":     {objects: []client.Object{serving, ofIPv6(fixtures.CiliumPodIPPool("default", 0))}, writes: "patch", left: 30},
		"kept by Helm":           {objects: []client.Object{serving, handMade(fixtures.CiliumPodIPPool("default", 27))}, left: 27},
		"another's, unserved":    {objects: []client.Object{handMade(fixtures.CiliumPodIPPool("blue", 27))}, pool: "blue", left: 27},
		"served no more":         {objects: []client.Object{fixtures.CiliumPodIPPool("blue", 30), fixtures.Pooled(2, "10.0.0.0/30")}, pool: "blue", writes: "delete"},
		"a node lists of it":     {objects: []client.Object{fixtures.CiliumPodIPPool("blue", 30), listing("10.8.0.0/30")}, pool: "blue", left: 30},
		"a pool that is going":   {objects: []client.Object{fixtures.BeingDeleted(finalized(bluePool("10.8.0.0/28"))), fixtures.CiliumPodIPPool("blue", 30)}, pool: "blue", left: 30},
		"off":                    {objects: []client.Object{serving}, change: func(r *CiliumPoolReconciler) { r.Off = true }},
		"the kind is not known":  {objects: []client.Object{serving}, change: func(r *CiliumPoolReconciler) { r.CiliumPools = state.NewCiliumPools() }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b, pool := poolBed(t, test.objects...), "default"
			if test.pool != "" {
				pool = test.pool
			}
			writes := strings.Join(b.keeps(pool, test.change), ", ")
			if test.writes != "" {
				test.writes += " CiliumPodIPPool"
			}
			if writes != test.writes {
				t.Errorf("writes %q, want %q", writes, test.writes)
			}
			left := 0
			if is := b.ciliumPools().Get(pool); is != nil {
				left = is.MaskSize[ipalloc.IPv4]
			}
			if left != test.left {
				t.Errorf("left is one of maskSize %d, want %d", left, test.left)
			}
		})
	}
}

// ofIPv6 has ranges of IPv6 too.
func ofIPv6(obj *ciliumv2alpha1.CiliumPodIPPool) *ciliumv2alpha1.CiliumPodIPPool {
	obj.Spec.IPv6 = &ciliumv2alpha1.IPv6PoolSpec{CIDRs: []ciliumv2alpha1.PoolCIDR{"fd00::/112"}, MaskSize: 122}
	return obj
}

// What people add to one of ours stays.
func TestCiliumPoolKeepsWhatPeopleAdd(t *testing.T) {
	obj := ofIPv6(fixtures.CiliumPodIPPool("default", 0))
	obj.Labels["announce"] = "pods"
	obj.Annotations = map[string]string{"ipam.cilium.io/skip-masquerade": "true"}
	obj.Spec.PodSelector = &slimmetav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	b := poolBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), obj)
	b.keeps("default", nil)
	got := &ciliumv2alpha1.CiliumPodIPPool{}
	if err := b.api.Get(t.Context(), client.ObjectKey{Name: "default"}, got); err != nil {
		t.Fatal(err)
	}
	if got.Spec.IPv4 == nil || got.Spec.IPv6 != nil || got.Labels["announce"] != "pods" || len(got.Annotations) != 1 || got.Spec.PodSelector.MatchLabels["app"] != "web" {
		t.Errorf("left is %+v", got)
	}
}

// One that a PodIPPool serves which the watch has not shown stays, and with it what
// people have written into it.
func TestCiliumPoolServedUnseen(t *testing.T) {
	b := poolBed(t, bluePool("10.8.0.0/28"), fixtures.CiliumPodIPPool("blue", 30))
	b.r.Pools.Delete("blues")
	if writes := b.keeps("blue", nil); len(writes) > 0 || b.ciliumPools().Get("blue") == nil {
		t.Errorf("writes %v", writes)
	}
}

// A write that loses is tried again, and is no error.
func TestCiliumPoolLosesARace(t *testing.T) {
	b := poolBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	unseen := b.ciliumPools()
	b.keeps("default", nil)
	r := &CiliumPoolReconciler{Live: b.api, Client: b.api, Ledger: b.r.Ledger, Pools: b.r.Pools, CiliumPools: unseen, Metrics: b.r.Metrics}
	result, err := r.Reconcile(t.Context(), requestOf("default"))
	if err != nil || result.RequeueAfter != conflictRetry {
		t.Errorf("%+v, %v", result, err)
	}
}

// An operator that is paused, looks on, or is told to keep none, writes none.
func TestKeepsNoCiliumPools(t *testing.T) {
	for name, test := range map[string]struct {
		settings Settings
		off      bool
	}{
		"keeps":  {Settings{KeepCiliumPools: true}, false},
		"not":    {Settings{}, true},
		"shadow": {Settings{KeepCiliumPools: true, Shadow: true}, true},
		"paused": {Settings{KeepCiliumPools: true, Paused: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			test.settings.Registry = prometheus.NewRegistry()
			o, err := New(Connections{Clock: clocktesting.NewFakePassiveClock(fixtures.Noon())}, test.settings)
			if err != nil || o.CiliumPool.Off != test.off {
				t.Errorf("off: %t, %v", o.CiliumPool.Off, err)
			}
		})
	}
}
