package harness

import (
	"net/netip"
	"regexp"
	"slices"
)

var ipv4 = regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?`)

// AddressesIn are the addresses and CIDRs in a text that lie in a range, each once.
func AddressesIn(text string, in netip.Prefix) []string {
	var out []string
	for _, word := range ipv4.FindAllString(text, -1) {
		p, err := netip.ParsePrefix(word)
		if addr, addrErr := netip.ParseAddr(word); addrErr == nil {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err == nil && p.Bits() >= in.Bits() && in.Contains(p.Addr()) {
			out = append(out, word)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
