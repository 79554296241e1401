package crd

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

const (
	// maxPoolName is the maximum length of a pool's name, which blocks carry.
	maxPoolName = 63
	// minCIDRBits keeps a range from spanning addresses of several kinds.
	minCIDRBits = 8
)

// DefaultCiliumPool is the Cilium pool for pods that request no other
// (pkg/defaults/defaults.go, IPAMDefaultIPPool, v1.20.1).
const DefaultCiliumPool = "default"

// CiliumPoolObjectName returns the name that objects have for the Cilium pool that a PodIPPool serves. In
// the code, "" stands for the default one.
func CiliumPoolObjectName(obj *v1alpha1.PodIPPool) string {
	return cmp.Or(obj.Spec.CiliumPoolName, DefaultCiliumPool)
}

// ciliumPool normalizes the name of the default pool.
func ciliumPool(obj *v1alpha1.PodIPPool) string {
	if obj.Spec.CiliumPoolName == DefaultCiliumPool {
		return ""
	}
	return obj.Spec.CiliumPoolName
}

// PoolFrom reads a pool. The error names every problem that keeps the pool from
// serving: the field, its value and how to fix it. The pool is a frozen stand-in then. The CRD's own rules reject most of
// them; objects older than those rules are caught here. Values that conflict only with
// the operator's defaults do not keep a pool from serving: see Pool.PolicyProblem.
func PoolFrom(obj *v1alpha1.PodIPPool, d Defaults) (*Pool, error) {
	p := settingsOf(obj, d)
	path := field.NewPath("spec")
	var problems field.ErrorList
	if len(obj.Name) > maxPoolName {
		problems = append(problems, field.TooLong(field.NewPath("metadata", "name"), obj.Name, maxPoolName))
	}
	selector, errs := parseSelector(obj.Spec.NodeSelector, path.Child("nodeSelector"))
	p.Selector = selector
	problems = append(problems, errs...)
	problems = append(problems, p.parseAddresses(&obj.Spec, path)...)
	if len(problems) > 0 {
		return frozenPool(obj, d), problems.ToAggregate()
	}
	return p, nil
}

// settingsOf reads all of a pool except its selector and its addresses. None of it can
// keep the pool from serving.
func settingsOf(obj *v1alpha1.PodIPPool, d Defaults) *Pool {
	spec := &obj.Spec
	path := field.NewPath("spec")
	p := &Pool{
		Name:        obj.Name,
		UID:         obj.UID,
		Generation:  obj.Generation,
		Created:     obj.CreationTimestamp.Time,
		Priority:    spec.Priority,
		CiliumPool:  ciliumPool(obj),
		Inactive:    ciliumPool(obj) != "" && !d.CiliumPools,
		Paused:      ptr.Deref(spec.Paused, false),
		Deleting:    obj.DeletionTimestamp != nil,
		WholeBlocks: d.WholeBlocks,
		SingleBlock: d.WholeBlocks && !d.CiliumPools,
		remainder:   spec.ReservedBlockPolicy == v1alpha1.PublishRemainder,
	}
	p.DrainUnselected = spec.UnselectedNodes.Policy == v1alpha1.UnselectedNodesDrain
	p.MaxUnselected = int(min(max(1, ptr.Deref(spec.UnselectedNodes.MaxConcurrent, 1)), maxUnselected))
	problems := unknownPolicies(spec, path)
	policy, errs := parsePolicy(spec, d.Policy, path)
	p.Policy = policy
	problems = append(problems, errs...)
	maintenance, errs := parseMaintenance(&spec.Maintenance, d.Maintenance, path.Child("maintenance"))
	p.Maintenance = maintenance
	problems = append(problems, errs...)
	p.Cooldown = d.Cooldown
	problems = append(problems, setCooldown(&p.Cooldown, spec.Cooldown, d, path.Child("cooldown"))...)
	p.NodeGoneCooldown = max(d.NodeGoneCooldown, p.Cooldown)
	pods, errs := parsePodAddresses(spec, d, path.Child("podAddresses"))
	p.PodAddresses = pods
	problems = append(problems, errs...)
	if len(problems) > 0 {
		p.PolicyProblem = problems.ToAggregate()
	}
	return p
}

func parseSelector(s *metav1.LabelSelector, path *field.Path) (labels.Selector, field.ErrorList) {
	if s == nil {
		return labels.Everything(), nil
	}
	errs := metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, path)
	if len(errs) > 0 {
		return nil, errs
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(s), err.Error())}
	}
	return selector, nil
}

// parseAddresses reads the ranges of both families, and the reserved ones.
func (p *Pool) parseAddresses(spec *v1alpha1.PodIPPoolSpec, path *field.Path) field.ErrorList {
	var problems field.ErrorList
	if spec.IPv4 == nil && spec.IPv6 == nil {
		problems = append(problems, field.Required(path, "set ipv4, ipv6 or both: a pool without addresses serves no node"))
	}
	for _, r := range RangesIn(spec) {
		ranges, errs := p.parseRanges(r, path.Child(r.Family.String()))
		p.ranges[r.Family] = ranges
		problems = append(problems, errs...)
	}
	// Reserved CIDRs outside the pool are found only once its ranges are known.
	known := len(problems) == 0
	return append(problems, p.parseReserved(spec.Reserved, known, path.Child("reserved"))...)
}

// parseReserved reads the reserved CIDRs. If the pool's ranges are known, they must lie
// in them.
func (p *Pool) parseReserved(reserved []v1alpha1.ReservedCIDR, known bool, path *field.Path) field.ErrorList {
	var whole, set netipx.IPSetBuilder
	for _, r := range p.AllRanges() {
		whole.AddPrefix(r.CIDR)
	}
	pool, err := whole.IPSet()
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}

	var problems field.ErrorList
	for i, r := range reserved {
		path := path.Index(i).Child("cidr")
		cidr, bad := parseCIDR(r.CIDR, path)
		switch {
		case bad != nil:
			problems = append(problems, bad)
		case known && !pool.ContainsPrefix(cidr):
			problems = append(problems, field.Invalid(path, r.CIDR,
				"lies outside the pool's CIDRs, at least in part: reserve addresses of the pool only"))
		default:
			set.AddPrefix(cidr)
			p.Reservations = append(p.Reservations, Reservation{CIDR: cidr, Description: r.Description})
		}
	}
	if p.Reserved, err = set.IPSet(); err != nil {
		return append(problems, field.InternalError(path, err))
	}
	p.reserved = p.Reserved.Prefixes()
	for _, f := range ipalloc.Families() {
		p.skipped[f] = p.skippedOf(f)
	}
	return problems
}

// SpecRanges are the ranges of a family in a pool's spec, to be modified in place.
type SpecRanges struct {
	Family    ipalloc.Family
	CIDRs     *[]v1alpha1.PoolCIDR
	BlockSize *int32
	EdgeIPs   *v1alpha1.EdgeIPs
}

// RangesIn returns the ranges of the families that a pool's spec has.
func RangesIn(spec *v1alpha1.PodIPPoolSpec) []SpecRanges {
	var ranges []SpecRanges
	if r := spec.IPv4; r != nil {
		ranges = append(ranges, SpecRanges{ipalloc.IPv4, &r.CIDRs, &r.BlockSize, &r.EdgeIPs})
	}
	if r := spec.IPv6; r != nil {
		ranges = append(ranges, SpecRanges{ipalloc.IPv6, &r.CIDRs, &r.BlockSize, &r.EdgeIPs})
	}
	return ranges
}

// CIDRsIn returns the CIDRs of a pool's spec that can be read.
func CIDRsIn(spec *v1alpha1.PodIPPoolSpec) []netip.Prefix {
	var cidrs []netip.Prefix
	for _, r := range RangesIn(spec) {
		for _, c := range *r.CIDRs {
			if cidr, err := netip.ParsePrefix(c.CIDR); err == nil {
				cidrs = append(cidrs, cidr)
			}
		}
	}
	return cidrs
}

func (p *Pool) parseRanges(spec SpecRanges, path *field.Path) (*Ranges, field.ErrorList) {
	f := spec.Family
	ranges := &Ranges{Bits: int(*spec.BlockSize), AllowFirst: ptr.Deref(spec.EdgeIPs.AllowFirstIP, false), AllowLast: ptr.Deref(spec.EdgeIPs.AllowLastIP, false)}
	var problems field.ErrorList
	shortest, longest := BlockSizes(f, p.WholeBlocks)
	sized := shortest <= ranges.Bits && ranges.Bits <= longest
	if !sized {
		must := fmt.Sprintf("must be a prefix length from %s to %s", f.SizeText(shortest), f.SizeText(longest))
		if !p.WholeBlocks {
			must += " in crd mode, where a CiliumNode lists each address of a block"
		}
		if n := uint(ranges.Bits); bits.OnesCount(n) == 1 { // perhaps meant as a number of addresses
			must += fmt.Sprintf(": for blocks of %d addresses write %d", n, f.Bits()-bits.TrailingZeros(n))
		}
		problems = append(problems, field.Invalid(path.Child("blockSize"), *spec.BlockSize, must))
	}
	path = path.Child("cidrs")
	if len(*spec.CIDRs) == 0 {
		problems = append(problems, field.Required(path, "list at least one CIDR"))
	}
	for i, c := range *spec.CIDRs {
		path := path.Index(i)
		cidr, bad := parseCIDR(c.CIDR, path.Child("cidr"))
		if bad == nil {
			bad = ranges.whyInvalid(cidr, f, sized, path.Child("cidr"))
		}
		if bad != nil {
			problems = append(problems, bad)
			continue
		}
		ranges.CIDRs = append(ranges.CIDRs, Range{CIDR: cidr, Policy: c.AllocationPolicy})
	}
	return ranges, problems
}

// whyInvalid returns why cidr is not valid as one of these ranges after those listed before
// it, or nil. sized says that the block size is known.
func (r *Ranges) whyInvalid(cidr netip.Prefix, f ipalloc.Family, sized bool, path *field.Path) *field.Error {
	invalid := func(format string, args ...any) *field.Error {
		return field.Invalid(path, cidr.String(), fmt.Sprintf(format, args...))
	}
	family := ipalloc.FamilyOf(cidr.Addr())
	if family != f {
		return invalid("is not %s: list it under spec.%s.cidrs", f, family)
	}
	if cidr.Bits() < minCIDRBits || !cidr.Addr().IsGlobalUnicast() {
		return invalid("holds addresses that pods cannot have: list a /%d or narrower, neither unspecified, loopback, link-local nor multicast", minCIDRBits)
	}
	if sized && cidr.Bits() > r.Bits {
		return invalid("is smaller than one block (%s): list a /%d or wider, or raise blockSize", f.SizeText(r.Bits), r.Bits)
	}
	for _, known := range r.CIDRs {
		if known.CIDR.Overlaps(cidr) {
			return invalid("overlaps %s of the same pool: keep one of them", known.CIDR)
		}
	}
	return nil
}

// unknownPolicies reports policies that a later version of the API may have. Each acts as the most
// careful one that this version knows.
func unknownPolicies(spec *v1alpha1.PodIPPoolSpec, path *field.Path) field.ErrorList {
	problems := slices.Concat(
		unknown(spec.ReservedBlockPolicy, path.Child("reservedBlockPolicy"), v1alpha1.SkipReservedBlocks, v1alpha1.PublishRemainder),
		unknown(spec.Reclaim.Policy, path.Child("reclaim", "policy"), v1alpha1.ReclaimNever, v1alpha1.ReclaimWhenIdle),
		unknown(spec.Reclaim.PressurePolicy, path.Child("reclaim", "pressurePolicy"), v1alpha1.PressureNever, v1alpha1.PressureShortens),
		unknown(spec.Maintenance.RatePolicy, path.Child("maintenance", "ratePolicy"), v1alpha1.RateLimited, v1alpha1.RateUnlimited),
		unknown(spec.UnselectedNodes.Policy, path.Child("unselectedNodes", "policy"), v1alpha1.UnselectedNodesRetain, v1alpha1.UnselectedNodesDrain),
	)
	for _, r := range RangesIn(spec) {
		for i, c := range *r.CIDRs {
			problems = append(problems, unknown(c.AllocationPolicy, path.Child(r.Family.String(), "cidrs").Index(i).Child("allocationPolicy"),
				v1alpha1.AllocationCordon, v1alpha1.AllocationAllocate, v1alpha1.AllocationDrain)...)
		}
	}
	return problems
}

// unknown returns the fault of a value that is neither empty, careful nor one of known.
func unknown[T ~string](value T, path *field.Path, careful T, known ...T) field.ErrorList {
	if value == "" || value == careful || slices.Contains(known, value) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, fmt.Sprintf(
		"this version of the operator does not know it, and acts as for %s: write %[1]s or one of %v, or upgrade the operator", careful, known))}
}

// BlockSizes returns the shortest and longest prefix length of a pool's blocks. whole: agents are
// assigned whole blocks.
func BlockSizes(f ipalloc.Family, whole bool) (shortest, longest int) {
	shortest = f.Bits() - ipalloc.MaxHostBits(f, whole)
	if whole {
		return shortest, f.Bits()
	}
	return shortest, f.Bits() - 2
}

// parseCIDR reads a CIDR. Beside an error it returns the likely meaning, if there is
// one.
func parseCIDR(s string, path *field.Path) (netip.Prefix, *field.Error) {
	cidr, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, field.Invalid(path, s, "is not a CIDR: write it like 10.20.0.0/16 or fd00:10::/48")
	}
	if cidr.Masked().Overlaps(mappedIPv4()) {
		return netip.Prefix{}, field.Invalid(path, s, fmt.Sprintf("holds IPv4-mapped addresses (%s), which are read as IPv4 elsewhere: use other addresses", mappedIPv4()))
	}
	if cidr.Masked() != cidr {
		return cidr.Masked(), field.Invalid(path, s, fmt.Sprintf("has host bits set: write %s", cidr.Masked()))
	}
	return cidr, nil
}

// mappedIPv4 is the IPv6 range of IPv4-mapped addresses (RFC 4291, 2.5.5.2). The
// agent's net.ParseIP treats them as IPv4.
func mappedIPv4() netip.Prefix { return netip.MustParsePrefix("::ffff:0:0/96") }
