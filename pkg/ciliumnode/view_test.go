package ciliumnode

import (
	"net/netip"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

func TestNewView(t *testing.T) {
	base := func() *View {
		return &View{Name: "n1", UID: "u1", ResourceVersion: "7"}
	}
	tests := map[string]struct {
		cn   func() *ciliumv2.CiliumNode
		want func(*View)
	}{
		"empty": {
			cn:   func() *ciliumv2.CiliumNode { return node(nil) },
			want: func(*View) {},
		},
		"pool of both families, with an owner written by hand": {
			cn: func() *ciliumv2.CiliumNode {
				cn := node([]string{"10.0.0.1", "fd00::1"})
				cn.Spec.IPAM.Pool["10.0.0.2"] = ipamtypes.AllocationIP{Owner: "default/db-0"}
				return cn
			},
			want: func(v *View) {
				v.Pool = map[netip.Addr]string{addrs("10.0.0.1")[0]: "", addrs("10.0.0.2")[0]: "default/db-0", addrs("fd00::1")[0]: ""}
			},
		},
		"keys in another than the canonical form": {
			cn: func() *ciliumv2.CiliumNode {
				return node([]string{"FD00::2", "fd00:0::1", "::ffff:10.0.0.9", "fd00::3"})
			},
			want: func(v *View) {
				v.Pool = map[netip.Addr]string{addrs("fd00::3")[0]: ""}
				v.NonCanonical = addrs("10.0.0.9", "fd00::1", "fd00::2")
			},
		},
		"keys with a zone, and two that mean the same": {
			cn: func() *ciliumv2.CiliumNode { return node([]string{"fd00::1%eth0", "FD00::1", "fd00::3"}) },
			want: func(v *View) {
				v.Pool = map[netip.Addr]string{addrs("fd00::3")[0]: ""}
				v.NonCanonical = addrs("fd00::1", "fd00::1")
			},
		},
		"podCIDRs with host bits, repeated, or IPv4-mapped": {
			cn: func() *ciliumv2.CiliumNode {
				return node(nil, "10.0.1.5/27", "10.0.1.0/27", "::ffff:10.0.0.0/123", "fd00::9/122", "10.0.0.0/27")
			},
			want: func(v *View) { v.PodCIDRs = cidrs("10.0.1.0/27", "10.0.0.0/27", "fd00::/122") },
		},
		"allocated CIDRs in such forms": {
			cn: func() *ciliumv2.CiliumNode {
				cn := node(nil)
				cn.Spec.IPAM.Pools.Allocated = pooled("blue 10.0.0.5/27", "default 10.0.0.5/27 10.0.0.0/27").Spec.IPAM.Pools.Allocated
				return cn
			},
			want: func(v *View) {
				v.Allocated = []Allocation{{Pool: "blue", CIDR: cidrs("10.0.0.0/27")[0]}, {Pool: "default", CIDR: cidrs("10.0.0.0/27")[0]}}
			},
		},
		"keys that are no addresses": {
			cn: func() *ciliumv2.CiliumNode { return node([]string{"x", "", "10.0.0.1/32", "010.0.0.1", "10.0.0.1"}) },
			want: func(v *View) {
				v.Pool = map[netip.Addr]string{addrs("10.0.0.1")[0]: ""}
				v.Unreadable = []string{"", "010.0.0.1", "10.0.0.1/32", "x"}
			},
		},
		"podCIDRs keep their order; invalid ones are left out": {
			cn: func() *ciliumv2.CiliumNode {
				cn := node(nil, "10.0.1.0/27", "fd00::/122", "10.0.0.0/27")
				cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.Prefix{})
				return cn
			},
			want: func(v *View) { v.PodCIDRs = cidrs("10.0.1.0/27", "fd00::/122", "10.0.0.0/27") },
		},
		"used, in whatever form": {
			cn: func() *ciliumv2.CiliumNode {
				cn := node(nil)
				cn.Status.IPAM.Used = ipamtypes.AllocationMap{
					"10.0.0.1": {Owner: "default/a [restored]"}, "::ffff:10.0.0.1": {Owner: "written by hand"}, "FD00::1": {Owner: "router"}, "nonsense": {Owner: "x"},
				}
				return cn
			},
			want: func(v *View) {
				v.Used = map[netip.Addr]string{addrs("10.0.0.1")[0]: "default/a [restored]", addrs("fd00::1")[0]: "router"}
			},
		},
		"release entries under canonical keys only, unknown states kept": {
			cn: func() *ciliumv2.CiliumNode {
				cn := node(nil)
				cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{
					"10.0.0.1": "marked-for-release", "10.0.0.2": "something new", "FD00::1": "released", "": "released",
				}
				return cn
			},
			want: func(v *View) {
				v.Release = map[netip.Addr]expand.ReleaseStatus{addrs("10.0.0.1")[0]: expand.Marked, addrs("10.0.0.2")[0]: "something new"}
			},
		},
		"the agent's own addresses and those of its node, each once": {
			cn: func() *ciliumv2.CiliumNode {
				cn := node(nil)
				cn.Spec.Addresses = []ciliumv2.NodeAddress{
					{Type: "InternalIP", IP: "192.168.0.1"}, {Type: "CiliumInternalIP", IP: "10.0.0.5"},
					{Type: "CiliumInternalIP", IP: "fd00::5"}, {Type: "CiliumInternalIP", IP: "broken"},
					{Type: "ExternalIP", IP: "203.0.113.1"}, {Type: "ExternalIP", IP: "broken"}, {Type: "InternalIP", IP: "192.168.0.1"},
					{Type: "Hostname", IP: "192.168.0.2"}, {Type: "Hostname", IP: "n1"}, {Type: "InternalIP", IP: "FE80::1%eth0"},
				}
				cn.Spec.HealthAddressing = ciliumv2.HealthAddressingSpec{IPv4: "10.0.0.6", IPv6: "fd00::5"}
				cn.Spec.IngressAddressing = ciliumv2.AddressPair{IPV4: "10.0.0.7"}
				return cn
			},
			want: func(v *View) {
				v.Own, v.Host = addrs("10.0.0.5", "10.0.0.6", "10.0.0.7", "fd00::5"), addrs("192.168.0.1", "192.168.0.2", "203.0.113.1", "fe80::1")
			},
		},
		"limits": {
			cn: func() *ciliumv2.CiliumNode {
				cn := node(nil)
				cn.Spec.IPAM.MinAllocate, cn.Spec.IPAM.PreAllocate = 1, 2
				cn.Spec.IPAM.MaxAllocate, cn.Spec.IPAM.MaxAboveWatermark = 3, 4
				return cn
			},
			want: func(v *View) {
				v.Limits = expand.Limits{MinAllocate: 1, PreAllocate: 2, MaxAllocate: 3, MaxAboveWatermark: 4}
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := base()
			test.want(want)
			if diff := cmp.Diff(want, NewView(test.cn()), compareNetip(), cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(View{})); diff != "" {
				t.Errorf("view (-want +got):\n%s", diff)
			}
		})
	}
}

func TestViewLists(t *testing.T) {
	v := NewView(node(nil, "10.0.0.0/24", "fd00::/122"))
	for cidr, want := range map[string]bool{
		"10.0.0.0/24": true, "fd00::/122": true, "10.0.0.0/27": false, "10.0.0.0/23": false,
	} {
		if got := v.Lists(netip.MustParsePrefix(cidr)); got != want {
			t.Errorf("Lists(%s) = %t, want %t", cidr, got, want)
		}
	}
}
