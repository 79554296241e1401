package ciliumnode

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Unpacking a map returns the packed entries.
func TestPacked(t *testing.T) {
	of := func(owner string, addrs ...string) map[netip.Addr]string {
		m := map[netip.Addr]string{}
		for _, a := range addrs {
			m[netip.MustParseAddr(a)] = owner
		}
		return m
	}
	many := map[netip.Addr]string{}
	for a, i := netip.MustParseAddr("10.0.0.0"), 0; i < 300; a, i = a.Next(), i+1 {
		many[a] = strings.Repeat("x", i)
	}
	for name, m := range map[string]map[netip.Addr]string{
		"nil":               nil,
		"empty":             {},
		"both families":     of("", "10.0.0.1", "fd00::1"),
		"owners":            of("default/web-0", "10.0.0.1", "255.255.255.255"),
		"an owner as bytes": of("\x00\xff\x80", "0.0.0.0"),
		"a zone":            of("router", "fe80::1%eth0", "fe80::1"),
		"IPv4 in IPv6":      of("", "::ffff:10.0.0.1", "10.0.0.1"),
		"many, long owners": many,
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(m, pack(m).unpack(), compareNetip()); diff != "" {
				t.Errorf("-packed +unpacked:\n%s", diff)
			}
		})
	}
}
