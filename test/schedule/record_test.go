package main

import (
	"net/netip"
	"slices"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// Addresses that an agent uses itself, that something else has reserved, or that are being
// released are not available to pods.
func TestSeeAddresses(t *testing.T) {
	cn := &ciliumv2.CiliumNode{}
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: addressing.NodeCiliumInternalIP, IP: "10.0.0.1"}, {Type: addressing.NodeInternalIP, IP: "10.0.0.2"}}
	cn.Spec.HealthAddressing.IPv4 = "10.0.0.3"
	cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{"10.0.0.9": {Owner: "default/reserved"}}
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8"} {
		cn.Spec.IPAM.Pool[a] = ipamtypes.AllocationIP{}
	}
	cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.4": {Owner: "ingress"}, "10.0.0.5": {Owner: "default/pod"}}
	cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{
		"10.0.0.5": "do-not-release", "10.0.0.6": "marked-for-release", "10.0.0.7": "ready-for-release", "10.0.0.8": "released",
	}
	c, err := seeAddresses(cn)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]netip.Addr{c.addresses.free, c.addresses.leaving} {
		slices.SortFunc(list, netip.Addr.Compare)
	}
	parsed := func(all ...string) (out []netip.Addr) {
		for _, a := range all {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	want := addressesSeen{free: parsed("10.0.0.2", "10.0.0.5"), leaving: parsed("10.0.0.6", "10.0.0.7", "10.0.0.8")}
	if diff := cmp.Diff(want, *c.addresses, cmp.AllowUnexported(addressesSeen{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSeePod(t *testing.T) {
	p := &corev1.Pod{}
	p.Spec.NodeName, p.Spec.NodeSelector = "a", map[string]string{corev1.LabelTopologyZone: "east"}
	list := corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("2")}
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}, {}}
	p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.0.0.1"
	c, err := seePod(p)
	want := podSeen{node: "a", zone: "east", requests: 2, running: true, address: netip.MustParseAddr("10.0.0.1")}
	if err != nil || *c.pod != want {
		t.Errorf("%+v, %v; want %+v", *c.pod, err, want)
	}
}

func TestSeePool(t *testing.T) {
	p := &v1alpha1.PodIPPool{}
	if _, err := seePool(p); err == nil {
		t.Error("a pool without zone and CIDRs was taken")
	}
	for _, o := range []client.Object{&v1alpha1.PodIPBlock{}} {
		if _, err := seeBlock(o); err == nil {
			t.Error("a block without CIDR was taken")
		}
	}
}
