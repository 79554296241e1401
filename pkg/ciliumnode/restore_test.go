package ciliumnode

import (
	"net/netip"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A View restores all of the object. A pool that it has whole is not kept twice.
func TestKeep(t *testing.T) {
	tests := map[string]struct {
		pool  ipamtypes.AllocationMap
		twice bool
	}{
		"empty":               {},
		"addresses":           {pool: ipamtypes.AllocationMap{"10.0.0.1": {}, "fd00::1": {}}},
		"an address given":    {pool: ipamtypes.AllocationMap{"10.0.0.1": {Owner: "default/a"}}},
		"a resource":          {pool: ipamtypes.AllocationMap{"10.0.0.1": {Resource: "eni-1"}}, twice: true},
		"an odd key":          {pool: ipamtypes.AllocationMap{"10.0.0.1": {}, "FD00::1": {Owner: "default/a"}}, twice: true},
		"a key of no address": {pool: ipamtypes.AllocationMap{"x": {Owner: "default/a"}}, twice: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			whole := node(nil, "10.0.0.0/30")
			whole.Labels, whole.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
			whole.Spec.IPAM.Pool, whole.Spec.IPAM.MinAllocate = test.pool, 3
			whole.Spec.HealthAddressing.IPv4 = "10.0.0.2"
			whole.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: "default/a"}}
			kept := NewView(whole.DeepCopy())
			if at := kept.At("later").ResourceVersion; at != "later" {
				t.Errorf("in a later version it is of version %s", at)
			}
			if twice := len(kept.original.Spec.IPAM.Pool) > 0; twice != test.twice {
				t.Errorf("the pool is kept twice: %t", twice)
			}
			again := kept.rebuild(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}})
			want := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{
				Name: whole.Name, Labels: whole.Labels, Annotations: whole.Annotations,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "node-uid"}},
			}, Spec: whole.Spec}
			if diff := cmp.Diff(want, again, compareNetip(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("restored (-whole +again):\n%s", diff)
			}
		})
	}
}

// All addresses that a CiliumNode names are kept from other nodes: published ones, used ones, and
// the agent's own, also under a spelling that is not canonical.
func TestAddresses(t *testing.T) {
	cn := node([]string{"10.0.0.1", "FD00::1"})
	cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.2": {Owner: "default/a"}}
	cn.Spec.HealthAddressing.IPv4 = "10.0.0.3"
	got := map[netip.Addr]bool{}
	for addr := range NewView(cn).NamedAddresses() {
		got[addr] = true
	}
	for _, addr := range []string{"10.0.0.1", "fd00::1", "10.0.0.2", "10.0.0.3"} {
		if !got[netip.MustParseAddr(addr)] {
			t.Errorf("%s is missing from %v", addr, got)
		}
	}
	if len(got) != 4 {
		t.Errorf("%v are named, want 4", got)
	}
}

func TestOwnedBy(t *testing.T) {
	cn := node(nil)
	cn.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", UID: "1"}, {Kind: "Node", UID: "2"}}
	for uid, want := range map[types.UID]bool{"1": false, "2": true, "3": false} {
		if got := NewView(cn).OwnedBy(&corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: uid}}); got != want {
			t.Errorf("owned by %s: %t", uid, got)
		}
	}
}
