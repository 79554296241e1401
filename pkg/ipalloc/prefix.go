package ipalloc

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// prefix is a masked network prefix of either family, with its address bits counted from the
// left: bit 0 is the top bit of hi. An IPv4 address fills the top 32.
type prefix struct {
	hi, lo uint64
	bits   uint8
}

// split converts a valid CIDR.
func split(cidr netip.Prefix) (Family, prefix) {
	addr := cidr.Addr()
	p := prefix{bits: uint8(cidr.Bits())}
	if addr.Is4() {
		a := addr.As4()
		p.hi = uint64(binary.BigEndian.Uint32(a[:])) << 32
		return IPv4, p
	}
	a := addr.As16()
	p.hi = binary.BigEndian.Uint64(a[:8])
	p.lo = binary.BigEndian.Uint64(a[8:])
	return IPv6, p
}

// cidr is the inverse of split.
func (p prefix) cidr(f Family) netip.Prefix {
	if f == IPv4 {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(p.hi>>32))
		return netip.PrefixFrom(netip.AddrFrom4(a), int(p.bits))
	}
	var a [16]byte
	binary.BigEndian.PutUint64(a[:8], p.hi)
	binary.BigEndian.PutUint64(a[8:], p.lo)
	return netip.PrefixFrom(netip.AddrFrom16(a), int(p.bits))
}

// part returns n bits of p, at most 8, starting at a bit.
func (p prefix) part(start, n uint8) uint8 {
	bits := p.hi<<start | p.lo>>(64-start)
	if start >= 64 {
		bits = p.lo << (start - 64)
	}
	return uint8(bits >> (64 - n))
}

// extend returns p with n more bits, at most 8. It is the inverse of part.
func (p prefix) extend(n, bits uint8) prefix {
	top := uint64(bits) << (64 - n)
	if p.bits < 64 {
		p.hi |= top >> p.bits
		p.lo |= top << (64 - p.bits)
	} else {
		p.lo |= top >> (p.bits - 64)
	}
	p.bits += n
	return p
}

// buddy returns the other half of the prefix that p is a half of. p must not be the whole
// address space.
func (p prefix) buddy() prefix {
	if i := p.bits - 1; i < 64 {
		p.hi ^= 1 << (63 - i)
	} else {
		p.lo ^= 1 << (127 - i)
	}
	return p
}

// commonBits returns the number of leading bits that the addresses of p and q share.
func (p prefix) commonBits(q prefix) uint8 {
	if x := p.hi ^ q.hi; x != 0 {
		return uint8(bits.LeadingZeros64(x))
	}
	return uint8(64 + bits.LeadingZeros64(p.lo^q.lo))
}

// contains reports whether q lies in p, or is p.
func (p prefix) contains(q prefix) bool {
	return p.bits <= q.bits && p.commonBits(q) >= p.bits
}

// masked returns p without the bits beyond its length.
func (p prefix) masked() prefix { return p.shorten(p.bits) }

// shorten returns the prefix of length n that contains p.
func (p prefix) shorten(n uint8) prefix {
	if n < 64 {
		return prefix{hi: p.hi &^ (^uint64(0) >> n), bits: n}
	}
	return prefix{hi: p.hi, lo: p.lo &^ (^uint64(0) >> (n - 64)), bits: n}
}
