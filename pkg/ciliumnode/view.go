package ciliumnode

import (
	"net/netip"
	"slices"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// View is a CiliumNode as plain values. It is read-only.
type View struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	// Created is when the API server created it. Zero: unknown.
	Created time.Time
	// Keepers are the finalizers that keep it although it was deleted. Nil: it was not.
	Keepers []string

	// Pool is spec.ipam.pool: address to the owner written there.
	Pool map[netip.Addr]string
	// Used is status.ipam.used: address to the owner reported.
	Used map[netip.Addr]string
	// NonCanonical are pool keys that are addresses in a non-canonical form. The agent would
	// allocate such an address a second time under its canonical key, so no address is published
	// beside them.
	NonCanonical []netip.Addr
	// Unreadable are pool keys that are not addresses.
	Unreadable []string
	// BadFields are values that Decode left out. Writes keep bad texts in lists of CIDRs, behind
	// the others; Recreate does not restore them.
	BadFields []BadField
	// PodCIDRs is spec.ipam.podCIDRs, in its order and without repetitions; where BlockAssignment is
	// set, the field that replaces it. Prefixes of a View are canonical.
	PodCIDRs []netip.Prefix
	// Allocated is spec.ipam.pools.allocated, in its order.
	Allocated []Allocation
	// Release is status.ipam.release-ips.
	Release map[netip.Addr]expand.ReleaseStatus
	// Own are the addresses the agent uses itself: CiliumInternalIP, health and
	// ingress.
	Own []netip.Addr
	// Stale are the agent's own addresses of a family that it once ran and no longer does. It
	// does not use them, and allocates new ones before it runs the family again. While it names
	// them, no other node may have them.
	Stale []netip.Addr
	// Host are the node's own addresses that the agent names.
	Host []netip.Addr
	// Limits are the knobs of the CRD family in spec.ipam.
	Limits expand.Limits

	// BlockAssignment is set if the agent is assigned whole blocks, all of PodCIDRs: Pool
	// and NonCanonical are empty then, and Used are Own.
	BlockAssignment *BlockAssignment

	// written is spec.ipam.podCIDRs as it is written, where that differs from PodCIDRs.
	written []netip.Prefix
	// entries are the source of Allocated.
	entries []poolCIDRs
	// neverRead: no agent has written the CiliumNode.
	neverRead bool
	// tracked: the API server tracks who writes which field, and no client needs that, as
	// clients that apply the object do.
	tracked bool
	// familyDisabled: the agent does not run the family.
	familyDisabled [2]bool
	// original is what Recreate restores in addition; nil: nothing else is known.
	original *ciliumv2.CiliumNode
}

// NewView reads a CiliumNode of crd mode, which must not be changed afterwards.
func NewView(cn *ciliumv2.CiliumNode) *View {
	v := &View{
		Name:            cn.Name,
		UID:             cn.UID,
		ResourceVersion: cn.ResourceVersion,
		Created:         cn.CreationTimestamp.Time,
		PodCIDRs:        prefixes(cn.Spec.IPAM.PodCIDRs),
		written:         writtenIn(cn.Spec.IPAM.PodCIDRs),
		BadFields:       badFieldsOf(cn),
		Own:             ownAddresses(cn),
		Host:            hostAddresses(cn),
		Limits: expand.Limits{
			MinAllocate:       cn.Spec.IPAM.MinAllocate,
			PreAllocate:       cn.Spec.IPAM.PreAllocate,
			MaxAllocate:       cn.Spec.IPAM.MaxAllocate,
			MaxAboveWatermark: cn.Spec.IPAM.MaxAboveWatermark,
		},
		Pool: make(map[netip.Addr]string, len(cn.Spec.IPAM.Pool)),
		Used: make(map[netip.Addr]string, len(cn.Status.IPAM.Used)),
	}
	if cn.DeletionTimestamp != nil {
		v.Keepers = cn.Finalizers
	}
	v.readAllocated(cn)
	for key, ip := range cn.Spec.IPAM.Pool {
		addr, ok := ipalloc.ParseAddr(key)
		switch {
		case !ok:
			v.Unreadable = append(v.Unreadable, key)
		case addr.String() != key:
			v.NonCanonical = append(v.NonCanonical, addr)
		default:
			v.Pool[addr] = ip.Owner
		}
	}
	slices.Sort(v.Unreadable)
	slices.SortFunc(v.NonCanonical, netip.Addr.Compare)
	for key, ip := range cn.Status.IPAM.Used {
		addr, ok := ipalloc.ParseAddr(key)
		if _, known := v.Used[addr]; ok && (!known || addr.String() == key) {
			v.Used[addr] = ip.Owner
		}
	}
	if n := len(cn.Status.IPAM.ReleaseIPs); n > 0 {
		v.Release = make(map[netip.Addr]expand.ReleaseStatus, n)
	}
	for key, status := range cn.Status.IPAM.ReleaseIPs {
		if addr, err := netip.ParseAddr(key); err == nil && addr.String() == key {
			v.Release[addr] = expand.ReleaseStatus(status)
		}
	}
	v.keepOriginal(cn)
	v.setFamilies(cn)
	v.tracked = len(cn.ManagedFields) > 0 && !slices.ContainsFunc(cn.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Operation == metav1.ManagedFieldsOperationApply
	})
	v.neverRead = cn.Spec.BootID == "" && len(v.Own)+len(v.Used)+len(v.NonCanonical) == 0
	return v
}

// NeverReadByAgent reports whether no agent in crd mode has read the CiliumNode: before it reads the
// pool, an agent writes its boot ID there (pkg/ipam/crd.go, newNodeStore;
// pkg/nodediscovery/nodediscovery.go, mutateNodeResource, v1.20.1). So a patch of this very version
// precedes all actions of an agent on it.
func (v *View) NeverReadByAgent() bool { return v != nil && v.BlockAssignment == nil && v.neverRead }

// HasAgent reports whether an agent has written the CiliumNode or reported in it.
func (v *View) HasAgent() bool {
	if v == nil {
		return false
	}
	if v.BlockAssignment == nil {
		return !v.neverRead
	}
	return v.BlockAssignment.Reported() || v.BlockAssignment.HasAgent
}

// Answers reports whether an answer of the agent about an address to be released stands.
func (v *View) Answers() bool {
	for _, status := range v.Release {
		if status.IsAnswer() {
			return true
		}
	}
	return false
}

// InUse returns the addresses in use that neither the agent's report nor pods name: the
// agent's own, and non-canonical ones, which the handshake cannot release.
func (v *View) InUse() []netip.Addr {
	if len(v.NonCanonical) == 0 {
		return v.Own
	}
	return append(slices.Clone(v.Own), v.NonCanonical...)
}

// Lists reports whether podCIDRs names cidr.
func (v *View) Lists(cidr netip.Prefix) bool { return slices.Contains(v.PodCIDRs, cidr) }

// HasBlock reports whether the CiliumNode has a block, in any of Cilium's pools.
func (v *View) HasBlock(cidr netip.Prefix) bool { return v != nil && slices.Contains(v.Listed(), cidr) }

// Publishes reports whether pods may get addr from the agent.
func (v *View) Publishes(addr netip.Addr) bool {
	if v.BlockAssignment != nil {
		return slices.ContainsFunc(v.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	_, ok := v.Pool[addr]
	return ok
}

// CountIn returns the number of addresses of cidr that pods may get from the agent.
func (v *View) CountIn(cidr netip.Prefix) int {
	if v.BlockAssignment == nil {
		return len(v.PublishedIn(cidr))
	}
	n := 0
	for _, p := range v.PodCIDRs {
		if p.Overlaps(cidr) {
			n += v.BlockAssignment.Count(ipalloc.Narrower(p, cidr))
		}
	}
	return n
}

// PublishedIn returns the addresses of cidr in spec.ipam.pool, sorted.
func (v *View) PublishedIn(cidr netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for addr := range v.Pool {
		if cidr.Contains(addr) {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// UsesAny reports whether an address of cidr is reported in use.
func (v *View) UsesAny(cidr netip.Prefix) bool {
	for addr := range v.Used {
		if cidr.Contains(addr) {
			return true
		}
	}
	return false
}

// Named returns the CIDRs and addresses that pods may get from the agent, of any Cilium pool.
func (v *View) Named() []netip.Prefix {
	if v.BlockAssignment != nil {
		return v.Listed()
	}
	out := make([]netip.Prefix, 0, len(v.Pool))
	for addr := range v.Pool {
		out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return out
}

// prefixes returns the canonical form of valid prefixes, each once, in their order.
func prefixes(list []iputil.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if c := ipalloc.Canonical(p.Prefix); c.IsValid() && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// writtenIn returns valid prefixes as they are written, or nil if prefixes does.
func writtenIn(list []iputil.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if p.IsValid() {
			out = append(out, p.Prefix)
		}
	}
	if slices.Equal(out, prefixes(list)) {
		return nil
	}
	return out
}

// ownAddresses returns those the agent writes into its CiliumNode about itself
// (pkg/nodediscovery/nodediscovery.go, mutateNodeResource, v1.20.1).
func ownAddresses(cn *ciliumv2.CiliumNode) []netip.Addr {
	health := cn.Spec.HealthAddressing
	ingress := cn.Spec.IngressAddressing
	texts := []string{health.IPv4, health.IPv6, ingress.IPV4, ingress.IPV6}
	for _, a := range cn.Spec.Addresses {
		if a.Type == ciliumInternalIP {
			texts = append(texts, a.IP)
		}
	}
	return addresses(texts)
}

// hostAddresses returns the addresses of the node itself, of any type, sorted.
func hostAddresses(cn *ciliumv2.CiliumNode) []netip.Addr {
	var texts []string
	for _, a := range cn.Spec.Addresses {
		if a.Type != ciliumInternalIP {
			texts = append(texts, a.IP)
		}
	}
	return addresses(texts)
}

// addresses returns the addresses among texts, each once, sorted.
func addresses(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		if addr, ok := ipalloc.ParseAddr(s); ok {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
