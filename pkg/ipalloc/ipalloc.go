// Package ipalloc owns the address space: which blocks are held, by whom, and
// which is the next free one.
//
// It never talks to Kubernetes, reads a clock, logs, or knows why a block is
// wanted. It is not safe for concurrent use.
package ipalloc

import (
	"errors"
	"fmt"
	"net/netip"
)

// Family is an address family.
type Family uint8

// The two families, always visited in this order.
const (
	IPv4 Family = iota
	IPv6
)

// Families lists both families in order.
func Families() [2]Family { return [2]Family{IPv4, IPv6} }

// FamilyOf returns the family of addr, which must be valid. An IPv4-mapped IPv6
// address counts as IPv6.
func FamilyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

// ParseAddr reads an address in any notation: it drops the zone, and returns an IPv4-mapped
// IPv6 address as IPv4. It returns false if text is no address.
func ParseAddr(text string) (addr netip.Addr, ok bool) {
	addr, err := netip.ParseAddr(text)
	return addr.Unmap().WithZone(""), err == nil
}

// Canonical returns one form for equal ranges: without host bits, and an IPv4-mapped IPv6 range as
// IPv4.
func Canonical(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

func (f Family) String() string {
	if f == IPv4 {
		return "ipv4"
	}
	return "ipv6"
}

// Bits returns the length of an address of the family: 32 or 128.
func (f Family) Bits() int {
	if f == IPv4 {
		return 32
	}
	return 128
}

// SizeText describes blocks of a prefix length: "/27 = 32 addresses", "/64 = 2^64 addresses".
func (f Family) SizeText(bits int) string {
	hostBits := f.Bits() - bits
	if hostBits == 0 {
		return fmt.Sprintf("/%d = 1 address", bits)
	}
	if hostBits > maxHostBitsInFull {
		return fmt.Sprintf("/%d = 2^%d addresses", bits, hostBits)
	}
	return fmt.Sprintf("/%d = %d addresses", bits, 1<<hostBits)
}

// maxHostBitsInFull bounds the sizes that SizeText writes as a number.
const maxHostBitsInFull = 16

// Phase is the stage of a held block's life.
type Phase uint8

// Phases of a block, in order.
const (
	InService   Phase = iota // its node may use it
	Draining                 // its node is returning it
	CoolingDown              // returned, and not assigned again yet
)

func (p Phase) String() string {
	switch p {
	case InService:
		return "InService"
	case Draining:
		return "Draining"
	case CoolingDown:
		return "CoolingDown"
	}
	return fmt.Sprintf("Phase(%d)", uint8(p))
}

// Owner is the holder of a block, and the block's phase.
type Owner struct {
	Pool, Node string
	Phase      Phase
}

func (o Owner) String() string { return fmt.Sprintf("node %s (pool %s)", o.Node, o.Pool) }

// Held is a block and its owner.
type Held struct {
	CIDR  netip.Prefix
	Owner Owner
}

var (
	// ErrExhausted means that no free block is left.
	ErrExhausted = errors.New("no free block left")
	// ErrNotReady means that the space has not been read completely: any block may be taken.
	ErrNotReady = errors.New("address space not read yet")
)

// ConflictError means that two blocks overlap.
type ConflictError struct{ New, Old Held }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("block %s of %s overlaps block %s of %s", e.New.CIDR, e.New.Owner, e.Old.CIDR, e.Old.Owner)
}
