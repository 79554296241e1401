package ciliumnode

import (
	"net/netip"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

func TestNewView(t *testing.T) {
	tests := map[string]struct {
		keys, podCIDRs []string
		edit           func(*ciliumv2.CiliumNode)
		want           View
	}{
		"pool of both families, with an owner written by hand": {
			keys: []string{"10.0.0.1", "fd00::1"},
			edit: func(cn *ciliumv2.CiliumNode) {
				cn.Spec.IPAM.Pool["10.0.0.2"] = ipamtypes.AllocationIP{Owner: "default/db-0"}
			},
			want: View{Addresses: &Addresses{Pool: map[netip.Addr]string{addrs("10.0.0.1")[0]: "", addrs("10.0.0.2")[0]: "default/db-0", addrs("fd00::1")[0]: ""}}},
		},
		"keys in another than the canonical form": {
			keys: []string{"FD00::2", "fd00:0::1", "::ffff:10.0.0.9", "fd00::3"},
			want: View{Addresses: &Addresses{Pool: map[netip.Addr]string{addrs("fd00::3")[0]: ""}, NonCanonical: addrs("10.0.0.9", "fd00::1", "fd00::2")}},
		},
		"keys with a zone, and two that mean the same": {
			keys: []string{"fd00::1%eth0", "FD00::1", "fd00::3"},
			want: View{Addresses: &Addresses{Pool: map[netip.Addr]string{addrs("fd00::3")[0]: ""}, NonCanonical: addrs("fd00::1", "fd00::1")}},
		},
		"keys that are no addresses": {
			keys: []string{"x", "", "10.0.0.1/32", "010.0.0.1", "10.0.0.1"},
			want: View{Addresses: &Addresses{Pool: map[netip.Addr]string{addrs("10.0.0.1")[0]: ""}, Unreadable: []string{"", "010.0.0.1", "10.0.0.1/32", "x"}}},
		},
		"podCIDRs with host bits, repeated, or IPv4-mapped": {
			podCIDRs: []string{"10.0.1.5/27", "10.0.1.0/27", "::ffff:10.0.0.0/123", "fd00::9/122", "10.0.0.0/27"},
			want:     View{PodCIDRs: cidrs("10.0.1.0/27", "10.0.0.0/27", "fd00::/122")},
		},
		"podCIDRs keep their order; invalid ones are left out": {
			podCIDRs: []string{"10.0.1.0/27", "fd00::/122", "10.0.0.0/27"},
			edit: func(cn *ciliumv2.CiliumNode) {
				cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.Prefix{})
			},
			want: View{PodCIDRs: cidrs("10.0.1.0/27", "fd00::/122", "10.0.0.0/27")},
		},
		"allocated CIDRs in such forms": {
			edit: func(cn *ciliumv2.CiliumNode) {
				allocated(cn, "blue 10.0.0.5/27", "default 10.0.0.5/27 10.0.0.0/27")
			},
			want: View{Allocated: []Allocation{{CiliumPool: "blue", CIDR: cidrs("10.0.0.0/27")[0]}, {CiliumPool: "default", CIDR: cidrs("10.0.0.0/27")[0]}}},
		},
		"used, in whatever form": {
			edit: func(cn *ciliumv2.CiliumNode) {
				cn.Status.IPAM.Used = ipamtypes.AllocationMap{
					"10.0.0.1": {Owner: "default/a [restored]"}, "::ffff:10.0.0.1": {Owner: "written by hand"}, "FD00::1": {Owner: "router"}, "nonsense": {Owner: "x"},
				}
			},
			want: View{Used: map[netip.Addr]string{addrs("10.0.0.1")[0]: "default/a [restored]", addrs("fd00::1")[0]: "router"}},
		},
		"release entries under canonical keys only, unknown states kept": {
			edit: func(cn *ciliumv2.CiliumNode) {
				cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{
					"10.0.0.1": "marked-for-release", "10.0.0.2": "something new", "FD00::1": "released", "": "released",
				}
			},
			want: View{Release: map[netip.Addr]expand.ReleaseStatus{addrs("10.0.0.1")[0]: expand.Marked, addrs("10.0.0.2")[0]: "something new"}},
		},
		"the agent's own addresses and those of its node, each once": {
			edit: func(cn *ciliumv2.CiliumNode) {
				cn.Spec.Addresses = []ciliumv2.NodeAddress{
					{Type: "InternalIP", IP: "192.168.0.1"}, {Type: "CiliumInternalIP", IP: "10.0.0.5"},
					{Type: "CiliumInternalIP", IP: "fd00::5"}, {Type: "CiliumInternalIP", IP: "broken"},
					{Type: "ExternalIP", IP: "203.0.113.1"}, {Type: "ExternalIP", IP: "broken"}, {Type: "InternalIP", IP: "192.168.0.1"},
					{Type: "Hostname", IP: "192.168.0.2"}, {Type: "Hostname", IP: "n1"}, {Type: "InternalIP", IP: "FE80::1%eth0"},
				}
				cn.Spec.HealthAddressing = ciliumv2.HealthAddressingSpec{IPv4: "10.0.0.6", IPv6: "fd00::5"}
				cn.Spec.IngressAddressing = ciliumv2.AddressPair{IPV4: "10.0.0.7"}
			},
			want: View{Own: addrs("10.0.0.5", "10.0.0.6", "10.0.0.7", "fd00::5"), Host: addrs("192.168.0.1", "192.168.0.2", "203.0.113.1", "fe80::1")},
		},
		"limits": {
			edit: func(cn *ciliumv2.CiliumNode) {
				cn.Spec.IPAM.MinAllocate, cn.Spec.IPAM.PreAllocate, cn.Spec.IPAM.MaxAllocate, cn.Spec.IPAM.MaxAboveWatermark = 1, 2, 3, 4
			},
			want: View{Limits: expand.Limits{MinAllocate: 1, PreAllocate: 2, MaxAllocate: 3, MaxAboveWatermark: 4}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cn := node(test.keys, test.podCIDRs...)
			if test.edit != nil {
				test.edit(cn)
			}
			test.want.Name, test.want.UID, test.want.ResourceVersion = "n1", "u1", "7"
			if test.want.Addresses == nil {
				test.want.Addresses = &Addresses{}
			}
			checkEqual(t, "view", &test.want, NewView(cn))
		})
	}
}
