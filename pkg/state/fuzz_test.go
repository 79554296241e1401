package state

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// FuzzLedger runs TestLedgerModel with arbitrary sequences of events.
func FuzzLedger(f *testing.F) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = data[:min(len(data), 4000)]
		m := newLedgerModel(t, func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := int(data[0])
			data = data[1:]
			return b % n
		})
		for step := 1; len(data) > 0; step++ {
			if m.step(t); step%40 == 0 {
				m.settle()
				m.check(t)
			}
		}
		m.settle()
		m.check(t)
		if t.Failed() {
			t.Logf("%v", m.log)
		}
	})
}

// FuzzForeign reads arbitrary CiliumNodes of a node that also has a block. No other node claims
// CIDRs that an agent or a peer would read from one, and all of them are free again once the
// CiliumNode is forgotten.
func FuzzForeign(f *testing.F) {
	f.Add("10.0.0.1 10.0.0.9", "10.0.0.2 ::ffff:10.0.0.10", "10.0.0.4/30")
	f.Add("", "10.0.0.9 ::ffff:10.0.0.13", "")
	f.Add("x 010.0.0.1 10.0.0.13/30", "", "10.0.0.0/8")
	f.Add("", "fe80::1%eth0", "0.0.0.0/0 10.0.0.13/30")
	f.Add("10.0.0.9", "", "10.0.0.0/16 10.0.0.13/15")
	f.Fuzz(func(t *testing.T, pool, used, podCIDRs string) {
		cn := fixtures.CiliumNode("n", "")
		cn.Spec.IPAM.Pool = fixtures.AllocationMap(strings.Fields(pool)...)
		cn.Status.IPAM.Used = fixtures.AllocationMap(strings.Fields(used)...)
		for _, word := range strings.Fields(podCIDRs) {
			if p, err := netip.ParsePrefix(word); err == nil {
				cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(p))
			}
		}
		l := ReadyLedger(fixtures.Block("10.0.0.0/30", "p", "n", 1))
		l.UpsertCiliumNode(ciliumnode.NewView(cn))
		pools := []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))}
		for {
			cidr, _, err := l.Claim(ipalloc.IPv4, "m", "", pools)
			if err != nil {
				break
			}
			if what := named(cn, cidr); what != "" {
				t.Errorf("%s is claimed, and the CiliumNode names %s", cidr, what)
			}
			l.Forget("m", cidr)
			l.space.Reserve(cidr) // try the next one
			defer l.space.Unreserve(cidr)
		}
	})
}

// named returns the CIDRs that a CiliumNode names within cidr, parsed independently.
func named(cn *ciliumv2.CiliumNode, cidr netip.Prefix) string {
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		if p.IsValid() && p.Overlaps(cidr) && p.Bits() >= 16 && (p.Bits() >= 20 || len(cn.Status.IPAM.Used) == 0) {
			return p.String()
		}
	}
	for _, keys := range []map[string]struct{}{keysOf(cn.Spec.IPAM.Pool), keysOf(cn.Status.IPAM.Used)} {
		for key := range keys {
			if a, err := netip.ParseAddr(key); err == nil && cidr.Contains(a.Unmap()) {
				return key
			}
		}
	}
	return ""
}

func keysOf[V any](m map[string]V) map[string]struct{} {
	out := map[string]struct{}{}
	for key := range m {
		out[key] = struct{}{}
	}
	return out
}
