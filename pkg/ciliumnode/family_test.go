package ciliumnode

import (
	"net/netip"
	"slices"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func TestNotRun(t *testing.T) {
	const v4, v6, pod, health4, configured = "10.0.0.1", "fd00::1", "10.0.0.9", "10.0.0.8", "fd00:ffff::23"
	inPool := func(a netip.Addr) bool { return a.Is4() || netip.MustParsePrefix("fd00::/64").Contains(a) }
	ipv6 := [2]bool{ipalloc.IPv6: true}
	tests := map[string]struct {
		own, used []string
		pool      string
		health    string
		ingress   string
		want      [2]bool
		stale     []netip.Addr
	}{
		"nothing said yet":                                         {},
		"reported, and no own address yet":                         {used: []string{v4}},
		"own address, and nothing reported":                        {own: []string{v4}},
		"IPv4 alone":                                               {own: []string{v4}, used: []string{v4, "10.0.0.2"}, want: ipv6},
		"IPv6 alone":                                               {own: []string{v6}, used: []string{v6}, want: [2]bool{ipalloc.IPv4: true}},
		"both":                                                     {own: []string{v4, v6}, used: []string{v4, v6}},
		"both, and the address of one is late":                     {own: []string{v4}, used: []string{v4, v6}},
		"IPv6 taken out again":                                     {own: []string{v4, v6}, used: []string{v4}, want: ipv6, stale: []netip.Addr{netip.MustParseAddr(v6)}},
		"IPv4 taken out again":                                     {own: []string{v4, v6}, used: []string{v6}, want: [2]bool{ipalloc.IPv4: true}, stale: []netip.Addr{netip.MustParseAddr(v4)}},
		"IPv6 and ingress taken out again":                         {own: []string{v4, v6}, used: []string{v4}, ingress: "fd00::2", want: ipv6, stale: []netip.Addr{netip.MustParseAddr(v6), netip.MustParseAddr("fd00::2")}},
		"both, and the report is empty":                            {own: []string{v4, v6}},
		"both, and the report names no router":                     {own: []string{v4, v6}, used: []string{pod}},
		"both, and a health address is named":                      {own: []string{v4, v6}, used: []string{v4}, health: "fd00::2"},
		"a router address that is configured":                      {own: []string{v4, "fe80::1"}, used: []string{v4}},
		"one that is configured is not link-local":                 {own: []string{v4, configured}, used: []string{v4}},
		"it is left, as the agent's pool has it":                   {own: []string{v4, configured}, used: []string{v4}, pool: configured, want: ipv6, stale: []netip.Addr{netip.MustParseAddr(configured)}},
		"it is left, as the agent has no health address beside it": {own: []string{v4, configured}, used: []string{v4, health4}, want: ipv6, stale: []netip.Addr{netip.MustParseAddr(configured)}},
		"both, and a pod has an address":                           {own: []string{v4, v6}, used: []string{v4, "fd00::7"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cn := &ciliumv2.CiliumNode{}
			// An address of the machine does not show the families of the agent.
			cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "InternalIP", IP: "192.0.2.1"}, {Type: "InternalIP", IP: "2001:db8::7"}}
			for _, ip := range test.own {
				cn.Spec.Addresses = append(cn.Spec.Addresses, ciliumv2.NodeAddress{Type: ciliumInternalIP, IP: ip})
			}
			cn.Spec.HealthAddressing.IPv6, cn.Spec.IngressAddressing.IPV6 = test.health, test.ingress
			cn.Status.IPAM.Used = ipamtypes.AllocationMap{}
			for _, ip := range test.used {
				owner := "default/" + ip
				switch ip {
				case v4, v6:
					owner = "router"
				case health4:
					owner = "health"
				}
				cn.Status.IPAM.Used[ip] = ipamtypes.AllocationIP{Owner: owner}
			}
			if test.pool != "" {
				cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{test.pool: {}}
			}
			v := NewView(cn).WithConfigured(inPool)
			if got := [2]bool{v.FamilyDisabled(ipalloc.IPv4), v.FamilyDisabled(ipalloc.IPv6)}; got != test.want {
				t.Errorf("not run: %v, want %v", got, test.want)
			}
			if !slices.Equal(v.Addresses.Stale, test.stale) {
				t.Errorf("stale: %v, want %v", v.Addresses.Stale, test.stale)
			}
			if slices.ContainsFunc(v.Own, func(a netip.Addr) bool { return slices.Contains(v.Addresses.Stale, a) }) {
				t.Errorf("own addresses %v include stale ones", v.Own)
			}
		})
	}
	if (*View)(nil).FamilyDisabled(ipalloc.IPv6) {
		t.Error("a node without a CiliumNode is said not to run IPv6")
	}
}

// TestStaleInMultiPool checks that a report from crd mode is ignored for an agent that has
// moved to multi-pool mode.
func TestStaleInMultiPool(t *testing.T) {
	cn := &ciliumv2.CiliumNode{}
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: ciliumInternalIP, IP: "10.0.0.1"}, {Type: ciliumInternalIP, IP: "fd00::1"}}
	cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: "router"}}
	if v := MultiPool.View(cn); len(v.Own) != 2 || v.Addresses != nil {
		t.Errorf("own %v, addresses %+v", v.Own, v.Addresses)
	}
}
