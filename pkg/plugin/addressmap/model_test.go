package addressmap

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var prefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestSectionsOf(t *testing.T) {
	spread := []netip.Prefix{}
	for i := range 40 {
		spread = append(spread, cidr(fmt.Sprintf("fd00::%x:0/122", 8*i)))
	}
	tests := map[string]struct {
		cidr netip.Prefix
		bits int
		held []netip.Prefix
		want []netip.Prefix
	}{
		"small":                       {cidr("10.0.0.0/8"), 26, nil, []netip.Prefix{cidr("10.0.0.0/8")}},
		"too large, and empty":        {cidr("fd00::/64"), 122, nil, []netip.Prefix{cidr("fd00::/110")}},
		"only windows with blocks":    {cidr("fd00::/64"), 122, []netip.Prefix{cidr("fd00::40/122"), cidr("fd00::9:0:40/122"), cidr("fd01::/122")}, []netip.Prefix{cidr("fd00::/110"), cidr("fd00::9:0:0/110")}},
		"many windows become larger":  {cidr("fd00::/64"), 122, spread, []netip.Prefix{cidr("fd00::/106"), cidr("fd00::40:0/106"), cidr("fd00::80:0/106"), cidr("fd00::c0:0/106"), cidr("fd00::100:0/106")}},
		"a block of another pool's":   {cidr("fd00::/64"), 122, []netip.Prefix{cidr("10.0.0.0/27")}, []netip.Prefix{cidr("fd00::/110")}},
		"as large as is drawn in one": {cidr("10.0.0.0/8"), 8 + wholeBits, nil, []netip.Prefix{cidr("10.0.0.0/8")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []netip.Prefix
			for _, s := range sectionsOf(Section{CIDR: test.cidr, Of: test.cidr, Drains: true}, test.bits, test.held) {
				got = append(got, s.CIDR)
				if s.Of != test.cidr || !s.Drains {
					t.Errorf("section %v forgot what it is part of", s)
				}
			}
			if diff := cmp.Diff(test.want, got, prefixes); diff != "" {
				t.Errorf("sections (-want +got):\n%s", diff)
			}
		})
	}
}
