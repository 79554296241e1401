package importer

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// usualBits returns the prefix length of blocks of 256 addresses, which replace blocks larger
// than a CiliumNode can list.
func usualBits(f ipalloc.Family) int { return f.Bits() - 8 }

// cidrs parses the CIDRs of one field, and remarks on invalid ones.
func (d *draft) cidrs(field string, all []string) []netip.Prefix {
	var read []netip.Prefix
	for _, s := range all {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			d.lost(fmt.Sprintf("%s: %s", field, s), "is not a CIDR", "Add what was meant to the pool")
			continue
		}
		if p.Masked() != p {
			d.note(fmt.Sprintf("%s: %s", field, s), "has host bits set: taken for "+p.Masked().String(), "")
		}
		read = append(read, p.Masked())
	}
	return read
}

// add adds ranges of a family to the pool, cut into blocks of length bits.
func (d *draft) add(f ipalloc.Family, cidrs []netip.Prefix, bits int, edges v1alpha1.EdgeIPs) {
	var list []v1alpha1.PoolCIDR
	for _, c := range cidrs {
		list = append(list, v1alpha1.PoolCIDR{CIDR: c.String()})
	}
	if f == ipalloc.IPv4 {
		d.pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{CIDRs: list, BlockSize: int32(bits), EdgeIPs: edges}
	} else {
		d.pool.Spec.IPv6 = &v1alpha1.IPv6Ranges{CIDRs: list, BlockSize: int32(bits), EdgeIPs: edges}
	}
}

// blockBits returns bits, or the nearest length that a PodIPPool can have in the mode of the agents.
func (d *draft) blockBits(field string, f ipalloc.Family, bits int) int {
	shortest, longest := crd.BlockSizes(f, d.result.whole)
	can := fmt.Sprintf("blockSize of a PodIPPool is from %d to %d in %s", shortest, longest, f)
	if !d.result.whole {
		can += " and crd mode"
	}
	fix := "Change it before you apply if you want another: it is immutable"
	field = fmt.Sprintf("%s: a /%d", field, bits)
	switch {
	case bits < shortest:
		d.lost(field, fmt.Sprintf("%s: it is %d, and nodes get more blocks as they need them", can, usualBits(f)), fix)
		return usualBits(f)
	case bits > longest:
		d.lost(field, fmt.Sprintf("%s: it is %d", can, longest), fix)
		return longest
	}
	return bits
}

// list splits a list that ConfigMaps and flags write as one string.
func list(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(", \t\n", c) })
}

// RangesOf returns the CIDRs of a pool, by family.
func RangesOf(s *v1alpha1.PodIPPoolSpec) [][]v1alpha1.PoolCIDR {
	var all [][]v1alpha1.PoolCIDR
	if s.IPv4 != nil {
		all = append(all, s.IPv4.CIDRs)
	}
	if s.IPv6 != nil {
		all = append(all, s.IPv6.CIDRs)
	}
	return all
}
