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

// sectionsOf returns the parts of a range that are drawn: all of it or, if it has too many
// cells (a /64 of /122 has 2^58), the aligned windows that contain blocks, and the first one.
// bits is the prefix length of a cell.
func sectionsOf(r Section, bits int, held []netip.Prefix) []Section {
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
