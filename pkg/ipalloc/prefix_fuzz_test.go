package ipalloc

import (
	"net/netip"
	"testing"
)

// FuzzPrefix compares the arithmetic of prefixes with net/netip's, in both families and across
// the border of the two words.
func FuzzPrefix(f *testing.F) {
	f.Add([]byte{10, 1, 2, 64}, uint8(26), []byte{10, 1, 2, 0}, uint8(26))
	f.Add([]byte{0, 0, 0, 0}, uint8(0), []byte{255, 255, 255, 255}, uint8(32))
	v6 := netip.MustParseAddr("2001:db8:0:1::40").AsSlice()
	for _, bits := range []uint8{0, 1, 63, 64, 65, 122, 128} {
		f.Add(v6, bits, netip.MustParseAddr("2001:db8:0:1:8000::").AsSlice(), uint8(65))
	}
	f.Fuzz(func(t *testing.T, a []byte, aBits uint8, b []byte, bBits uint8) {
		x, ok := prefixFrom(a, aBits)
		y, okToo := prefixFrom(b, bBits)
		if !ok || !okToo {
			return
		}
		checkPrefix(t, x)
		checkPair(t, x, y)
	})
}

func prefixFrom(raw []byte, bits uint8) (netip.Prefix, bool) {
	addr, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr, int(bits)%(addr.BitLen()+1)).Masked(), true
}

// bitOf returns bit i of an address, counted from the left.
func bitOf(a netip.Addr, i int) uint8 { return a.AsSlice()[i/8] >> (7 - i%8) & 1 }

// flipped returns the address with bit i flipped.
func flipped(a netip.Addr, i int) netip.Addr {
	raw := a.AsSlice()
	raw[i/8] ^= 1 << (7 - i%8)
	out, _ := netip.AddrFromSlice(raw)
	return out
}

func checkPrefix(t *testing.T, x netip.Prefix) {
	t.Helper()
	f, p := split(x)
	want := func(what string, got prefix, want netip.Prefix) {
		t.Helper()
		if g, q := split(want); got != q || g != f || got.cidr(f) != want {
			t.Errorf("%s of %s is %s, want %s", what, x, got.cidr(f), want)
		}
	}
	want("itself", p, x)
	for n := range x.Bits() + 1 {
		want("a shorter one", p.shorten(uint8(n)), netip.PrefixFrom(x.Addr(), n).Masked())
	}
	for i := range f.Bits() {
		if p.part(uint8(i), 1) != bitOf(x.Addr(), i) {
			t.Errorf("bit %d of %s is %d", i, x, p.part(uint8(i), 1))
		}
	}
	if x.Bits() < f.Bits() {
		want("the lower half", p.extend(1, 0), netip.PrefixFrom(x.Addr(), x.Bits()+1))
		want("the upper half", p.extend(1, 1), netip.PrefixFrom(flipped(x.Addr(), x.Bits()), x.Bits()+1))
	}
	if x.Bits() > 0 {
		want("the buddy", p.buddy(), netip.PrefixFrom(flipped(x.Addr(), x.Bits()-1), x.Bits()))
	}
}

func checkPair(t *testing.T, x, y netip.Prefix) {
	t.Helper()
	f, p := split(x)
	g, q := split(y)
	if f != g {
		return
	}
	if got, want := p.contains(q), x.Bits() <= y.Bits() && x.Contains(y.Addr()); got != want {
		t.Errorf("%s contains %s: %t, want %t", x, y, got, want)
	}
	same := 0
	for same < f.Bits() && bitOf(x.Addr(), same) == bitOf(y.Addr(), same) {
		same++
	}
	// An IPv4 address fills the upper half of a word; the rest is zero in both.
	if got := int(p.commonBits(q)); got != same && (same < f.Bits() || got < same) {
		t.Errorf("%s and %s share %d bits, want %d", x, y, got, same)
	}
}
