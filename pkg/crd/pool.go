// Package crd turns PodIPPools and PodIPBlocks into plain values and back. It defines the meaning
// of a pool's spec: its blocks, their usable addresses, its nodes, and the pool that assigns an
// address of two overlapping ones.
//
// It never talks to Kubernetes, reads a clock, or logs, and it does not know which
// blocks are held.
package crd

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Defaults apply where a pool's spec omits a value.
type Defaults struct {
	Policy expand.Policy
	// Maintenance applies where a pool does not specify its own.
	Maintenance Maintenance
	// Cooldown is the time that a returned block cools down.
	Cooldown time.Duration
	// NodeGoneCooldown is the cooldown of a block without a node, as the machine may still be
	// running.
	NodeGoneCooldown time.Duration
	// WholeBlocks skips the whole block if a pool reserves a usable address of it, as agents
	// allocate whole blocks only.
	WholeBlocks bool
	// CiliumPools: agents have several Cilium pools. Otherwise a PodIPPool that names
	// one serves no nodes.
	CiliumPools bool
}

// Pool is a PodIPPool with a valid spec. It is read-only.
type Pool struct {
	Name       string
	UID        types.UID
	Generation int64
	Created    time.Time

	Priority int32
	Selector labels.Selector
	// CiliumPool is the Cilium pool that it serves, where agents have several; "": the
	// default one.
	CiliumPool string
	// Owner is set on a pool as it serves the pinned addresses of one owner: see ForCiliumPoolOfOwner.
	Owner string
	// Inactive: it names a Cilium pool, and agents have none.
	Inactive bool
	// Paused: the operator changes no node that this pool rules.
	Paused bool
	// Deleting: the object is being deleted; no block is claimed from it.
	Deleting bool
	// Reserved are addresses of the pool that pods never get, and Reservations the
	// CIDRs that name them, in the order of the spec.
	Reserved     *netipx.IPSet
	Reservations []Reservation
	// Policy and Maintenance are the spec's, merged with the defaults.
	Policy      expand.Policy
	Maintenance Maintenance
	// PolicyProblem is the fault of the thresholds and waits of the spec, and the values in force
	// instead. Nodes must not lack addresses because of a wrong threshold, so the pool is valid
	// otherwise.
	PolicyProblem error
	// DrainUnselected: blocks drain on nodes that the pool no longer selects, on MaxUnselected
	// nodes at a time.
	DrainUnselected bool
	MaxUnselected   int
	// PodAddresses are the pods that keep an address of the pool; nil: none.
	PodAddresses *PodAddresses
	// Cooldown is the time that a returned block cools down.
	Cooldown time.Duration
	// NodeGoneCooldown is the cooldown of a block without a node: never shorter than Cooldown.
	NodeGoneCooldown time.Duration
	// WholeBlocks: agents assign pods any address of a block, as in Defaults. SingleBlock: a node
	// gets one block of each family, and no more.
	WholeBlocks, SingleBlock bool

	ranges   [2]*Ranges     // by family
	reserved []netip.Prefix // Reserved, as few prefixes as possible, sorted
	// skipped are the blocks that are not assigned, by family: see Skipped.
	skipped   [2][]netip.Prefix
	frozen    bool
	remainder bool // a partly reserved block is still assigned
}

// Reservation is a CIDR of a pool that pods never get.
type Reservation struct {
	CIDR        netip.Prefix
	Description string // "": not specified
}

func (r Reservation) String() string {
	if r.Description == "" {
		return r.CIDR.String()
	}
	return r.CIDR.String() + " (" + r.Description + ")"
}

// Ranges are a pool's CIDRs of one family, and their block size.
type Ranges struct {
	// CIDRs are in the order of the spec. They share no address.
	CIDRs []Range
	// Bits is the prefix length of a block.
	Bits int
	// AllowFirst and AllowLast let pods have the edges of each block too.
	AllowFirst, AllowLast bool
}

// Range is one CIDR of a pool.
type Range struct {
	CIDR netip.Prefix
	// Policy is the use of the range for nodes. Empty means Allocate.
	Policy v1alpha1.AllocationPolicy
	// YieldsTo is the pool that assigns these addresses instead, and Overlap that
	// pool's CIDR. Empty: this pool does.
	YieldsTo string
	Overlap  netip.Prefix
}

// Allocates reports whether nodes get new blocks of the range, by its policy.
func (r Range) Allocates() bool {
	return r.Policy == "" || r.Policy == v1alpha1.AllocationAllocate
}

// Drains reports whether nodes must return their blocks of the range.
func (r Range) Drains() bool { return r.Policy == v1alpha1.AllocationDrain }

// Ranges returns the pool's ranges of family f, and false if it has none. They
// must not be changed.
func (p *Pool) Ranges(f ipalloc.Family) (*Ranges, bool) {
	r := p.ranges[f]
	return r, r != nil
}

// SizeText describes the pool's blocks of some families: "/27 = 32 addresses"; "": there are none.
func (p *Pool) SizeText(families ...ipalloc.Family) string {
	var sizes []string
	for _, f := range families {
		if ranges, ok := p.Ranges(f); ok && !p.frozen {
			sizes = append(sizes, f.SizeText(ranges.Bits))
		}
	}
	return strings.Join(sizes, ", ")
}

// AllRanges returns the pool's CIDRs of both families; nil has none.
func (p *Pool) AllRanges() []Range {
	var ranges []Range
	for _, f := range ipalloc.Families() {
		if p != nil && p.ranges[f] != nil {
			ranges = append(ranges, p.ranges[f].CIDRs...)
		}
	}
	return ranges
}

// Cut returns the ranges of family f that blocks can be claimed from now: none that is cordoned,
// drains or belongs to another pool. It returns false if no range is left.
func (p *Pool) Cut(f ipalloc.Family) (ipalloc.Cut, bool) {
	return p.cut(f, func(r Range) bool { return r.Allocates() && r.YieldsTo == "" })
}

// FullCut returns all ranges of family f, and false if the pool has none.
func (p *Pool) FullCut(f ipalloc.Family) (ipalloc.Cut, bool) {
	return p.cut(f, func(Range) bool { return true })
}

// Assigns reports whether nodes can get block: it lies in a range of Cut, no reservation keeps it
// back, and the pool is not being deleted.
func (p *Pool) Assigns(block netip.Prefix) bool {
	r, ok := p.RangeOf(block)
	return ok && r.Allocates() && r.YieldsTo == "" && !p.Skips(block) && !p.Deleting
}

// AssignsNow reports whether nodes can get cidr as a block of the pool now, by a pin too.
func (p *Pool) AssignsNow(cidr netip.Prefix) bool {
	return p.OnGrid(cidr) && p.Assigns(cidr) && !p.Paused
}

// ManyCiliumPools reports whether its nodes' agents have several Cilium pools, as in multi-pool mode.
func (p *Pool) ManyCiliumPools() bool { return p.WholeBlocks && !p.SingleBlock }

// ServesCiliumPool reports whether its blocks are for a Cilium pool: "" for the default one, or that of an owner that
// a pin names. Where agents have one Cilium pool, all are.
func (p *Pool) ServesCiliumPool(ciliumPool string) bool {
	return !p.ManyCiliumPools() || p.CiliumPool == ciliumPool || OwnerOfPool(ciliumPool) != ""
}

// ForCiliumPoolOfOwner returns the pool as it serves the Cilium pool of one owner: nodes claim only the addresses that
// are pinned to it.
func (p *Pool) ForCiliumPoolOfOwner(ciliumPool string) *Pool {
	pool := *p
	pool.Owner = OwnerOfPool(ciliumPool)
	pool.CiliumPool = ciliumPool
	return &pool
}

// PhasesOut reports whether nodes get no new block of family f by intent: the pool is
// being deleted, or none of its CIDRs allocates. That is not exhaustion.
func (p *Pool) PhasesOut(f ipalloc.Family) bool {
	ranges, ok := p.Ranges(f)
	return ok && (p.Deleting || !p.frozen && !slices.ContainsFunc(ranges.CIDRs, Range.Allocates))
}

// Problem returns all problems of a pool that serves nevertheless, or nil.
func (p *Pool) Problem() error { return errors.Join(p.PolicyProblem, p.Maintenance.Problem) }

func (p *Pool) cut(f ipalloc.Family, want func(Range) bool) (ipalloc.Cut, bool) {
	ranges, ok := p.Ranges(f)
	if !ok {
		return ipalloc.Cut{}, false
	}
	cut := ipalloc.Cut{BlockBits: ranges.Bits}
	for _, r := range ranges.CIDRs {
		if want(r) {
			cut.Ranges = append(cut.Ranges, r.CIDR)
		}
	}
	return cut, len(cut.Ranges) > 0
}

// OnGrid reports whether this pool could have allocated block: it has the right length
// and lies in one of the pool's CIDRs, including cordoned, draining and closed ones.
func (p *Pool) OnGrid(block netip.Prefix) bool {
	_, ok := p.RangeOf(block)
	return ok && block.Masked() == block && block.Bits() == p.rangesFor(block).Bits
}

// Drains reports whether the node must return block: its range drains, or it no longer
// lies in any of the pool's CIDRs.
func (p *Pool) Drains(block netip.Prefix) bool {
	r, ok := p.RangeOf(block)
	return !p.frozen && (!ok || r.Drains())
}

// Contains reports whether one of the pool's CIDRs contains all of block, including
// cordoned, draining and closed ones.
func (p *Pool) Contains(block netip.Prefix) bool {
	_, ok := p.RangeOf(block)
	return ok
}

// Overlaps reports whether one of the pool's CIDRs shares addresses with block.
func (p *Pool) Overlaps(block netip.Prefix) bool {
	return slices.ContainsFunc(p.rangesFor(block).CIDRs, func(r Range) bool { return r.CIDR.Overlaps(block) })
}

// Yields reports whether another pool assigns the addresses of block, which one of
// the pool's CIDRs contains.
func (p *Pool) Yields(block netip.Prefix) bool {
	r, _ := p.RangeOf(block)
	return r.YieldsTo != ""
}

// RangeOf returns the range that contains the whole block.
func (p *Pool) RangeOf(block netip.Prefix) (Range, bool) {
	if !block.IsValid() {
		return Range{}, false
	}
	for _, r := range p.rangesFor(block).CIDRs {
		if ipalloc.Contains(r.CIDR, block) {
			return r, true
		}
	}
	return Range{}, false
}

// rangesFor returns the ranges of the block's family; empty ones if the pool has none, as for a
// block that a person pinned to it.
func (p *Pool) rangesFor(block netip.Prefix) *Ranges {
	if r, ok := p.Ranges(ipalloc.FamilyOf(block.Addr())); ok {
		return r
	}
	return &Ranges{}
}

// frozenPool is the stand-in for a pool that cannot serve. It assigns no block and
// requests none back; nodes keep their blocks, and published addresses stay published.
// It depends only on the object and the defaults, so a restarted operator treats the
// pool as the previous one did.
//
// It withholds the reserved ranges of its spec, as far as they are readable. If its selector is not
// readable, it selects no node.
func frozenPool(obj *v1alpha1.PodIPPool, d Defaults) *Pool {
	p := settingsOf(obj, d)
	p.frozen = true
	p.Selector = labels.Nothing()
	p.Policy.ReclaimDisabled = true // a node could not get a returned block again
	if obj.Spec.NodeSelector == nil {
		p.Selector = labels.Everything()
	} else if selector, err := metav1.LabelSelectorAsSelector(obj.Spec.NodeSelector); err == nil {
		p.Selector = selector
	}
	for _, r := range RangesIn(&obj.Spec) {
		p.ranges[r.Family] = &Ranges{}
	}
	_ = p.parseReserved(obj.Spec.Reserved, false, field.NewPath("spec", "reserved")) // the caller has reported these
	return p
}

// Frozen reports whether the pool is only a stand-in made because PoolFrom failed.
func (p *Pool) Frozen() bool { return p.frozen }
