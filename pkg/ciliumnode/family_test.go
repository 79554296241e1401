package ciliumnode

import (
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func TestNotRun(t *testing.T) {
	const v4, v6 = "10.0.0.1", "fd00::1"
	tests := map[string]struct {
		own, used []string
		want      [2]bool
	}{
		"nothing said yet":                     {},
		"reported, and no own address yet":     {used: []string{v4}},
		"own address, and nothing reported":    {own: []string{v4}},
		"IPv4 alone":                           {own: []string{v4}, used: []string{v4, "10.0.0.2"}, want: [2]bool{ipalloc.IPv6: true}},
		"IPv6 alone":                           {own: []string{v6}, used: []string{v6}, want: [2]bool{ipalloc.IPv4: true}},
		"both":                                 {own: []string{v4, v6}, used: []string{v4, v6}},
		"both, and the report of one is late":  {own: []string{v4, v6}, used: []string{v4}},
		"both, and the address of one is late": {own: []string{v4}, used: []string{v4, v6}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cn := &ciliumv2.CiliumNode{}
			// An address of the machine says nothing of what the agent runs.
			cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "InternalIP", IP: "192.0.2.1"}, {Type: "InternalIP", IP: "2001:db8::7"}}
			for _, ip := range test.own {
				cn.Spec.Addresses = append(cn.Spec.Addresses, ciliumv2.NodeAddress{Type: ciliumInternalIP, IP: ip})
			}
			cn.Status.IPAM.Used = ipamtypes.AllocationMap{}
			for _, ip := range test.used {
				cn.Status.IPAM.Used[ip] = ipamtypes.AllocationIP{Owner: "router"}
			}
			v := NewView(cn)
			if got := [2]bool{v.NotRun(ipalloc.IPv4), v.NotRun(ipalloc.IPv6)}; got != test.want {
				t.Errorf("not run: %v, want %v", got, test.want)
			}
		})
	}
	if (*View)(nil).NotRun(ipalloc.IPv6) {
		t.Error("a node without a CiliumNode is said not to run IPv6")
	}
}
