package crd

import (
	"net/netip"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// maxWider bounds how often one block counts, to 2^40, so that no sum overflows.
const maxWider = 40

// Tally counts blocks of any size in units of a pool's block size, so that they compare
// with the pool's total: an adopted block of twice the size counts twice, and smaller
// ones in the place of one block count once, in the earliest phase among them.
type Tally struct {
	pool  *Pool
	sums  [2][3]int64
	parts map[netip.Prefix]ipalloc.Phase
}

// NewTally counts in blocks of pool.
func NewTally(pool *Pool) *Tally { return &Tally{pool: pool, parts: map[netip.Prefix]ipalloc.Phase{}} }

// Add counts a block.
func (t *Tally) Add(b Block) {
	bits := t.pool.rangesFor(b.CIDR).Bits
	if bits == 0 { // pinned to a pool without this family
		bits = b.CIDR.Bits()
	}
	if b.CIDR.Bits() <= bits {
		wider := min(bits-b.CIDR.Bits(), maxWider)
		t.sums[ipalloc.FamilyOf(b.CIDR.Addr())][b.Phase] += 1 << wider
		return
	}
	place := blockOf(b.CIDR.Addr(), bits)
	if phase, ok := t.parts[place]; !ok || b.Phase < phase {
		t.parts[place] = b.Phase
	}
}

// Sum returns the counts by family and phase.
func (t *Tally) Sum() [2][3]int64 {
	sum := t.sums
	for place, phase := range t.parts {
		sum[ipalloc.FamilyOf(place.Addr())][phase]++
	}
	return sum
}
