package world

import (
	"net/netip"
	"slices"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// TestWithheldOfAgents checks that exactly those addresses of a node's block are withheld that
// another node's agent has as its own outside of what belongs to its node.
func TestWithheldOfAgents(t *testing.T) {
	first := netip.MustParseAddr("10.0.0.1")
	tests := map[string]struct {
		own, pool, podCIDR, holder string // of n1's agent: its router, its pool and podCIDR; whose block its address is
		gone, whole                bool
		want                       bool
	}{
		"in no CiliumNode":                 {holder: "n2"},
		"another agent's own":              {own: "10.0.0.1", holder: "n2", want: true},
		"the one beside it is":             {own: "10.0.0.2", holder: "n2"},
		"in another node's pool alone":     {pool: "10.0.0.1", holder: "n2"},
		"in that node's block":             {own: "10.0.0.1", holder: "n1"},
		"in that node's podCIDR":           {own: "10.0.0.1", podCIDR: "10.0.0.0/29", holder: "n2"},
		"that CiliumNode is gone":          {own: "10.0.0.1", holder: "n2", gone: true},
		"agents are assigned whole blocks": {own: "10.0.0.1", holder: "n2", whole: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) {
				if test.whole {
					c.Settings.Mode, c.Upgraded.Mode = ciliumnode.MultiPool, ciliumnode.MultiPool
				}
			})
			cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			if test.own != "" {
				cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: addressing.NodeCiliumInternalIP, IP: test.own}}
			}
			if test.pool != "" {
				cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{test.pool: {}}
			}
			if test.podCIDR != "" {
				cn.Spec.IPAM.PodCIDRs = []iputil.Prefix{iputil.PrefixFrom(netip.MustParsePrefix(test.podCIDR))}
			}
			if !test.gone {
				w.must(w.api.Create(cn))
			}
			w.users.pin(netip.MustParsePrefix("10.0.0.0/29"), "main", test.holder)
			if got := w.space.withheld(first); got != test.want {
				t.Errorf("withheld %t, want %t", got, test.want)
			}
		})
	}
}

// TestKeptForAWithheldAddress checks that a node may keep a block in place of an address that
// is another agent's own, but not if it has enough without both, and that it keeps that address
// itself only while it is in use.
func TestKeptForAWithheldAddress(t *testing.T) {
	tests := map[string]struct {
		router     string   // of n1's agent
		pool, used []string // of n2, which has 10.0.0.0/29 and 10.0.0.8/29
		broken     []int
	}{
		"none is withheld":         {pool: []string{"10.0.0.1", "10.0.0.2", "10.0.0.9"}, used: []string{"10.0.0.2"}, broken: []int{9}},
		"one is, and has left":     {router: "10.0.0.1", pool: []string{"10.0.0.2", "10.0.0.9"}, used: []string{"10.0.0.2"}},
		"one is, and is in use":    {router: "10.0.0.1", pool: []string{"10.0.0.1", "10.0.0.2", "10.0.0.9"}, used: []string{"10.0.0.1"}},
		"one is, and has not left": {router: "10.0.0.1", pool: []string{"10.0.0.1", "10.0.0.2", "10.0.0.9"}, used: []string{"10.0.0.2"}, broken: []int{10}},
		"there are enough others":  {router: "10.0.0.1", pool: []string{"10.0.0.2", "10.0.0.3", "10.0.0.9"}, used: []string{"10.0.0.2"}, broken: []int{9}},
		"it is of the block kept":  {router: "10.0.0.9", pool: []string{"10.0.0.1", "10.0.0.2"}, used: []string{"10.0.0.2"}, broken: []int{9}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) { c.Settings.Defaults.Policy.MinFree = 0 })
			other := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			if test.router != "" {
				other.Spec.Addresses = []ciliumv2.NodeAddress{{Type: addressing.NodeCiliumInternalIP, IP: test.router}}
			}
			w.must(w.api.Create(other))
			cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
			cn.Spec.IPAM.Pool, cn.Status.IPAM.Used = allocationMap(test.pool), allocationMap(test.used)
			w.must(w.api.Create(cn))
			w.users.pin(netip.MustParsePrefix("10.0.0.0/29"), "main", "n2")
			w.users.pin(netip.MustParsePrefix("10.0.0.8/29"), "main", "n2")
			m := w.machine("n2")
			m.phase = serving
			w.settled.checkBlocks("at rest", m, cn)
			var broken []int
			for _, v := range w.Violations {
				broken = append(broken, v.Rule)
			}
			if !slices.Equal(broken, test.broken) {
				t.Errorf("broken: %v, want the rules %v", w.Violations, test.broken)
			}
		})
	}
}

func allocationMap(addrs []string) ipamtypes.AllocationMap {
	out := ipamtypes.AllocationMap{}
	for _, addr := range addrs {
		out[addr] = ipamtypes.AllocationIP{}
	}
	return out
}
