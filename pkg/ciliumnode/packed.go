package ciliumnode

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"net/netip"
	"strings"
)

// packed is a map of addresses to owners packed into a string, which takes a sixth of the
// bytes: the number of addresses, then each address and its owner, both prefixed with their
// length. The empty string is the nil map.
type packed string

func pack(owners map[netip.Addr]string) packed {
	if owners == nil {
		return ""
	}
	size := sizeOf(len(owners))
	for addr, owner := range owners {
		n := addr.BitLen()/8 + len(addr.Zone())
		size += sizeOf(n) + n + sizeOf(len(owner)) + len(owner)
	}
	var data strings.Builder
	data.Grow(size)
	var buf [64]byte
	data.Write(binary.AppendUvarint(buf[:0], uint64(len(owners))))
	for addr, owner := range owners {
		data.Write(binary.AppendUvarint(buf[:0], uint64(addr.BitLen()/8+len(addr.Zone()))))
		raw, _ := addr.AppendBinary(buf[:0]) // which never fails
		data.Write(raw)
		data.Write(binary.AppendUvarint(buf[:0], uint64(len(owner))))
		data.WriteString(owner)
	}
	return packed(data.String())
}

// sizeOf returns the number of bytes of an encoded number.
func sizeOf(n int) int { return max(1, (bits.Len(uint(n))+6)/7) }

// unpack returns the map. Its owners are substrings of the packed string.
func (p packed) unpack() map[netip.Addr]string {
	if p == "" {
		return nil
	}
	n, _ := cutNumber(string(p))
	owners := make(map[netip.Addr]string, n)
	for addr, owner := range p.all() {
		owners[addr] = owner
	}
	return owners
}

// all iterates over the map.
func (p packed) all() iter.Seq2[netip.Addr, string] {
	return func(yield func(netip.Addr, string) bool) {
		if p == "" {
			return
		}
		for _, data := cutNumber(string(p)); data != ""; {
			var raw, owner string
			raw, data = cutText(data)
			owner, data = cutText(data)
			var addr netip.Addr
			_ = addr.UnmarshalBinary([]byte(raw)) // of an address, which never fails
			if !yield(addr, owner) {
				return
			}
		}
	}
}

// cutText cuts off a text with its length prefix.
func cutText(data string) (text, rest string) {
	n, data := cutNumber(data)
	return data[:n], data[n:]
}

// cutNumber cuts off a number written by binary.AppendUvarint.
func cutNumber(data string) (n int, rest string) {
	for i := 0; ; i++ {
		n |= int(data[i]&0x7f) << (7 * i)
		if data[i] < 0x80 {
			return n, data[i+1:]
		}
	}
}
