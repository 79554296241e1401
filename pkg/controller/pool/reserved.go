package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Reasons of the condition ReservedBlocksHeld, beside ReasonInvalid and ReasonNotApplicable.
const (
	ReasonHeldBefore  = "HeldBeforeReserved"
	ReasonNoneSkipped = "NoneHeld"
)

// namedBlocks bounds the number of blocks that a message names.
const namedBlocks = 5

// reservedIs reports the blocks that nodes held before a range was reserved. A
// reservation never moves them: it would take addresses from pods for the sake of
// others that may not be used yet, on many nodes at once.
func reservedIs(pool *crd.Pool, overlapping []crd.Block) *condition {
	families := ipalloc.Families()
	switch {
	case unreadable(pool):
		return noSpec()
	case !slices.ContainsFunc(families[:], func(f ipalloc.Family) bool { return len(pool.Skipped(f)) > 0 }):
		return isFalse(ReasonNotApplicable, "no reserved range keeps a block of the pool from nodes")
	}
	held := slices.DeleteFunc(slices.Clone(overlapping), func(b crd.Block) bool { return b.Phase == ipalloc.CoolingDown || !pool.Skips(b.CIDR) })
	slices.SortFunc(held, func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) })
	if len(held) == 0 {
		return isFalse(ReasonNoneSkipped, "no node holds a block that overlaps a reserved range")
	}
	var parts []string
	for _, b := range held[:min(len(held), namedBlocks)] {
		parts = append(parts, fmt.Sprintf("block %s of node %s overlaps reserved %s", b.CIDR, b.Node, reservedIn(pool, b.CIDR)))
	}
	message := strings.Join(parts, "; ")
	if more := len(held) - namedBlocks; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	if pool.WholeBlocks {
		return isTrue(ReasonHeldBefore, message+". Agents give pods any address of a block, reserved ones too. "+
			"A block leaves once its agent returns it, or with its Node: drain the Node")
	}
	return isTrue(ReasonHeldBefore, message+". Pods get no reserved address, but other nodes still route these blocks as a whole. "+
		"To move one off its node, which gets a replacement first: kubectl cilium-pool drain "+held[0].Name)
}

// reservedIn names the first reserved range that shares addresses with block.
func reservedIn(pool *crd.Pool, block netip.Prefix) string {
	for _, r := range pool.Reservations {
		if r.CIDR.Overlaps(block) {
			return r.String()
		}
	}
	return block.String()
}
