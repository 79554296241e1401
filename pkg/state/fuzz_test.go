package state

import (
	"math/big"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
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

// FuzzReached compares resourceVersions of any form. The API server uses numbers of any
// length.
func FuzzReached(f *testing.F) {
	f.Add("10", "9")
	f.Add("", "1")
	f.Add("1", "")
	f.Add("18446744073709551616", "18446744073709551615")
	f.Add("010", "9")
	f.Add("x", "7")
	number := regexp.MustCompile(`^[1-9][0-9]*$`)
	f.Fuzz(func(t *testing.T, a, b string) {
		if !reached(a, a) || !reached(a, "") {
			t.Errorf("%q has not reached itself, or nothing", a)
		}
		if !number.MatchString(a) || !number.MatchString(b) {
			return
		}
		x, _ := new(big.Int).SetString(a, 10)
		y, _ := new(big.Int).SetString(b, 10)
		if got, want := reached(a, b), x.Cmp(y) >= 0; got != want {
			t.Errorf("%s has reached %s: %t", a, b, got)
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

// FuzzClaims claims for arbitrary nodes from arbitrary pools that share addresses: no two blocks
// overlap, each lies within one range of the pool named, and no block is left over while a pool has
// room.
func FuzzClaims(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{255, 128, 3, 0, 0, 0, 17, 34, 51})
	f.Fuzz(func(t *testing.T, data []byte) {
		pools := []*crd.Pool{
			fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28", "10.0.1.0/29")),
			fixtures.PoolOf(t, fixtures.PodIPPool("q", 2, "10.0.0.8/29", "10.0.2.0/30")),
		}
		l := ReadyLedger()
		held := map[netip.Prefix]string{}
		for _, b := range data[:min(len(data), 200)] {
			node := []string{"a", "b", "c"}[b%3]
			order := slices.Clone(pools)
			if b&8 != 0 {
				slices.Reverse(order)
			}
			if cidrs := sortedKeys(held); b&0xc0 == 0xc0 && len(cidrs) > 0 {
				cidr := cidrs[int(b)%len(cidrs)]
				l.Forget(held[cidr], cidr)
				delete(held, cidr)
				continue
			}
			cidr, pool, err := l.Claim(ipalloc.IPv4, node, "", order)
			if err != nil {
				if len(held) != 7 { // of 4, 2, and 1 that the pools do not share
					t.Fatalf("%v with %d of 7 blocks held: %v", err, len(held), held)
				}
				continue
			}
			for other := range held {
				if other.Overlaps(cidr) {
					t.Fatalf("%s is claimed, and %s is held", cidr, other)
				}
			}
			if !pool.OnGrid(cidr) {
				t.Fatalf("%s is no block of pool %s", cidr, pool.Name)
			}
			held[cidr] = node
		}
	})
}

func sortedKeys(m map[netip.Prefix]string) []netip.Prefix {
	var out []netip.Prefix
	for p := range m {
		out = append(out, p)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}
