package exclude

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// Asks together withhold a quarter of the blocks of a CIDR, the oldest ones first.
func TestGranted(t *testing.T) {
	var services []Ask
	for i := range 16 { // of a tenant: all blocks of a /20 of /27 blocks
		ask := Ask{By: Claimant{Service, fmt.Sprintf("t/%02d", i), true}}
		for n := range 16 {
			ask.CIDRs = append(ask.CIDRs, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i%8*2 + n/8), byte(n % 8 * 32)}), 32))
		}
		services = append(services, ask)
	}
	claim := func(name string, seconds int64, cidrs ...string) Ask {
		return Ask{By: Claimant{LoadBalancerPool, name, true}, Since: time.Unix(seconds, 0), CIDRs: prefixes(cidrs...)}
	}
	for name, test := range map[string]struct {
		cidr string
		bits int
		asks []Ask
		want []string
	}{
		"externalIPs of one tenant": {"10.0.0.0/20", 27, services, []string{"t/00", "t/01"}},
		"four quarters": {"10.0.0.0/20", 27, []Ask{
			claim("d", 4, "10.0.12.0/22"), claim("a", 3, "10.0.0.0/22"), claim("b", 2, "10.0.4.0/22"), claim("c", 2, "10.0.8.0/22"),
		}, []string{"b"}},
		"a smaller one after one too large": {"10.0.0.0/20", 27, []Ask{claim("a", 1, "10.0.0.0/21"), claim("b", 2, "10.0.0.0/24")}, []string{"b"}},
		"an address in a range":             {"10.0.0.0/20", 27, []Ask{claim("a", 1, "10.0.0.0/23"), claim("b", 2, "10.0.0.9/32", "10.0.2.0/23")}, []string{"a", "b"}},
		"more than the CIDR":                {"10.0.0.0/20", 27, []Ask{claim("a", 1, "10.0.0.0/8"), claim("b", 2, "fd00::/8", "10.1.0.0/16")}, []string{"b"}},
		"a CIDR of three blocks at most":    {"10.0.0.0/26", 27, []Ask{claim("a", 1, "10.0.0.1/32")}, nil},
		"large ranges":                      {"fd00::/32", 64, []Ask{claim("a", 1, "fd00:0:8000::/34"), claim("b", 2, "fd00::1/128")}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			slices.SortFunc(test.asks, Ask.Compare)
			var got []string
			for by := range Granted(netip.MustParsePrefix(test.cidr), test.bits, test.asks) {
				got = append(got, by.Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("withheld for %v, want %v", got, test.want)
			}
		})
	}
}

// Whatever objects ask for, they withhold at most a quarter of the blocks of a CIDR.
func TestGrantedAgainstList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	cidr := netip.MustParsePrefix("10.0.0.0/24")
	for range 500 {
		bits := 26 + r.IntN(5)
		var asks []Ask
		for i := range r.IntN(9) {
			ask := Ask{By: Claimant{Service, fmt.Sprint(i), true}}
			for range r.IntN(4) {
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(256))}), 24+r.IntN(9))
				ask.CIDRs = append(ask.CIDRs, p.Masked())
			}
			asks = append(asks, ask)
		}
		granted := Granted(cidr, bits, asks)
		blocks := map[netip.Prefix]bool{}
		for i := range 256 {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			for _, ask := range asks {
				if granted[ask.By] && slices.ContainsFunc(ask.CIDRs, func(p netip.Prefix) bool { return p.Contains(addr) }) {
					blocks[netip.PrefixFrom(addr, bits).Masked()] = true
				}
			}
		}
		if total := 1 << (bits - 24); len(blocks) > total/4 {
			t.Fatalf("%d of %d blocks are withheld for %v", len(blocks), total, asks)
		}
	}
}
