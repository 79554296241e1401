package ciliumnode

import (
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
)

func TestGiven(t *testing.T) {
	v := NewView(allocated(node(nil, "10.0.0.0/24", "fd00::/122"), "default 10.0.0.0/24 10.0.9.0/27", "other 10.0.1.0/27"))
	checkEqual(t, "given", cidrs("10.0.0.0/24", "fd00::/122", "10.0.9.0/27", "10.0.1.0/27"), v.AssignedCIDRs())
	want := []Allocation{{"default", cidrs("10.0.0.0/24")[0]}, {"default", cidrs("10.0.9.0/27")[0]}, {"other", cidrs("10.0.1.0/27")[0]}}
	checkEqual(t, "allocated", want, v.Allocated)
}

func TestUnadopted(t *testing.T) {
	used := func(cn *ciliumv2.CiliumNode) *ciliumv2.CiliumNode {
		cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: "router"}}
		return cn
	}
	requested := func(cn *ciliumv2.CiliumNode) *ciliumv2.CiliumNode {
		cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 8}}}
		return cn
	}
	tests := map[string]struct {
		cn   *ciliumv2.CiliumNode
		held []string
		want []string
		mode Mode
	}{
		"nothing given":                      {cn: node(nil)},
		"podCIDRs":                           {cn: node(nil, "10.0.0.0/24"), want: []string{"10.0.0.0/24"}},
		"allocated":                          {cn: pooled("default 10.0.0.0/27"), want: []string{"10.0.0.0/27"}},
		"half is a block":                    {cn: node(nil, "10.0.0.0/24", "fd00::/122"), held: []string{"10.0.0.0/24"}, want: []string{"fd00::/122"}},
		"all is a block":                     {cn: node(nil, "10.0.0.0/24"), held: []string{"10.0.0.0/24"}},
		"a wider block":                      {cn: node(nil, "10.0.0.0/24"), held: []string{"10.0.0.0/23"}},
		"a smaller block":                    {cn: node(nil, "10.0.0.0/24"), held: []string{"10.0.0.0/25"}, want: []string{"10.0.0.0/24"}},
		"the agent has reported":             {cn: used(node(nil, "10.0.0.0/24"))},
		"something of it is published":       {cn: node([]string{"10.0.0.5"}, "10.0.0.0/24", "10.0.7.0/24")},
		"in another than the canonical form": {cn: node([]string{"::ffff:10.0.0.5"}, "10.0.0.0/24")},
		"what is published is elsewhere":     {cn: node([]string{"10.9.0.5"}, "10.0.0.0/24"), want: []string{"10.0.0.0/24"}},
		"in multi-pool mode":                 {mode: MultiPool, cn: node(nil, "10.0.0.0/24"), want: []string{"10.0.0.0/24"}},
		"the same, a block":                  {mode: MultiPool, cn: node(nil, "10.0.0.0/24"), held: []string{"10.0.0.0/24"}},
		"allocated in multi-pool mode":       {mode: MultiPool, cn: pooled("default 10.0.0.0/27")},
		"requested in multi-pool mode":       {mode: MultiPool, cn: requested(node(nil, "10.0.0.0/24"))},
		"the agent runs in crd mode":         {mode: MultiPool, cn: used(node(nil, "10.0.0.0/24"))},
		"a Node":                             {mode: ClusterPool, cn: node(nil, "10.0.0.0/24")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(cidrs(tt.want...), tt.mode.View(tt.cn).Unadopted(cidrs(tt.held...)), compareNetip()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
