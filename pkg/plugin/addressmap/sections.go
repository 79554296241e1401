package addressmap

import (
	"net/netip"
	"slices"
)

const (
	// wholeBits: a CIDR of up to two to the power of it cells is drawn as a whole.
	wholeBits = 18
	// windowBits are the cells of a window into a larger one.
	windowBits = 12
	// mostWindows is the largest number of windows before they are enlarged.
	mostWindows = 16
)

// SectionsOf returns the parts of a range that are drawn: all of it or, if it has too many
// cells (a /64 of /122 has 2^58), the aligned windows that contain blocks, and the first one.
// bits is the prefix length of a cell.
func SectionsOf(r Section, bits int, held []netip.Prefix) []Section {
	if bits-r.CIDR.Bits() <= wholeBits {
		return []Section{r}
	}
	var windows []netip.Prefix
	for size := windowBits; ; size += 2 {
		windows = windowsOf(r.CIDR, bits-size, held)
		if len(windows) <= mostWindows || size >= wholeBits {
			break
		}
	}
	sections := make([]Section, len(windows))
	for i, w := range windows {
		sections[i] = r
		sections[i].CIDR = w
	}
	return sections
}

func windowsOf(cidr netip.Prefix, bits int, held []netip.Prefix) []netip.Prefix {
	windows := []netip.Prefix{netip.PrefixFrom(cidr.Addr(), bits).Masked()}
	for _, b := range held {
		if cidr.Contains(b.Addr()) {
			windows = append(windows, netip.PrefixFrom(b.Addr(), bits).Masked())
		}
	}
	slices.SortFunc(windows, netip.Prefix.Compare)
	return slices.Compact(windows)
}

// cellOf returns the number of the cell of length bits that contains an address of a section.
func cellOf(section netip.Prefix, bits int, addr netip.Addr) int {
	n, bytes := 0, addr.AsSlice()
	for i := section.Bits(); i < bits; i++ {
		n = n<<1 | int(bytes[i/8]>>(7-i%8))&1
	}
	return n
}

// cellAt is the inverse of cellOf.
func cellAt(section netip.Prefix, bits, cell int) netip.Prefix {
	bytes := section.Addr().AsSlice()
	for i := bits - 1; i >= section.Bits(); i, cell = i-1, cell>>1 {
		bytes[i/8] |= byte(cell&1) << (7 - i%8)
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, bits)
}

// place is a block's first cell and its number of cells. A block smaller than a cell fills it.
type place struct{ section, first, count int }

// placeOf finds the section of a pool that contains a block. It returns false if there is none,
// as for a block of a CIDR that was removed.
func (p Pool) placeOf(b netip.Prefix) (place, bool) {
	for i, s := range p.Sections {
		if s.CIDR.Overlaps(b) && s.CIDR.Bits() <= b.Bits() {
			count := 1
			if b.Bits() < p.BlockBits {
				count = 1 << (p.BlockBits - b.Bits())
			}
			return place{i, cellOf(s.CIDR, p.BlockBits, b.Addr()), count}, true
		}
	}
	return place{}, false
}
