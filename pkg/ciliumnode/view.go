package ciliumnode

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// View is a CiliumNode, or the Node in its place, as plain values: the ones that every mode has, and
// exactly one of Addresses and BlockAssignment. It is read-only.
type View struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	// Created is when the API server created it. Zero: unknown.
	Created time.Time
	// Keepers are the finalizers that keep it although it was deleted. Nil: it was not.
	Keepers []string

	// BadFields are values that Decode left out. Writes keep bad texts in lists of CIDRs, behind
	// the others; Recreate does not restore them.
	BadFields []BadField
	// PodCIDRs is spec.ipam.podCIDRs, in its order and without repetitions; where BlockAssignment is
	// set, the field that replaces it. Prefixes of a View are canonical.
	PodCIDRs []netip.Prefix
	// Allocated is spec.ipam.pools.allocated, in its order. In cluster-pool and kubernetes mode it is
	// empty.
	Allocated []Allocation
	// Used is status.ipam.used: address to the owner reported. Where BlockAssignment is set, it is
	// Own, and in kubernetes mode empty.
	Used map[netip.Addr]string
	// Release is status.ipam.release-ips.
	Release map[netip.Addr]expand.ReleaseStatus
	// Own are the addresses the agent uses itself: CiliumInternalIP, health and
	// ingress.
	Own []netip.Addr
	// Host are the node's own addresses that the agent names.
	Host []netip.Addr
	// Limits are the knobs of the CRD family in spec.ipam.
	Limits expand.Limits

	// Addresses is set if the agent is assigned single addresses.
	Addresses *Addresses
	// BlockAssignment is set if the agent is assigned whole blocks, all of PodCIDRs.
	BlockAssignment *BlockAssignment

	// entries are the source of Allocated.
	entries []poolCIDRs
	// familyDisabled: the agent does not run the family.
	familyDisabled [2]bool
	// original is what Recreate restores in addition; nil: nothing else is known.
	original *ciliumv2.CiliumNode
}

// newView reads the fields of a CiliumNode that mean the same in every mode.
func newView(cn *ciliumv2.CiliumNode) *View {
	v := &View{
		Name:            cn.Name,
		UID:             cn.UID,
		ResourceVersion: cn.ResourceVersion,
		Created:         cn.CreationTimestamp.Time,
		BadFields:       badFieldsOf(cn),
		Host:            hostAddresses(cn),
		Limits: expand.Limits{
			MinAllocate:       cn.Spec.IPAM.MinAllocate,
			PreAllocate:       cn.Spec.IPAM.PreAllocate,
			MaxAllocate:       cn.Spec.IPAM.MaxAllocate,
			MaxAboveWatermark: cn.Spec.IPAM.MaxAboveWatermark,
		},
	}
	if cn.DeletionTimestamp != nil {
		v.Keepers = cn.Finalizers
	}
	for i, entry := range cn.Spec.IPAM.Pools.Allocated {
		v.entries = append(v.entries, poolCIDRs{entry, badTexts(v.BadFields, fmt.Sprintf("spec.ipam.pools.allocated[%d].cidrs[", i))})
	}
	if n := len(cn.Status.IPAM.ReleaseIPs); n > 0 {
		v.Release = make(map[netip.Addr]expand.ReleaseStatus, n)
	}
	for key, status := range cn.Status.IPAM.ReleaseIPs {
		if addr, err := netip.ParseAddr(key); err == nil && addr.String() == key {
			v.Release[addr] = expand.ReleaseStatus(status)
		}
	}
	return v
}

// NeverReadByAgent reports whether no agent in crd mode has read the CiliumNode: before it reads the
// pool, an agent writes its boot ID there (pkg/ipam/crd.go, newNodeStore;
// pkg/nodediscovery/nodediscovery.go, mutateNodeResource, v1.20.1). So a patch of this very version
// precedes all actions of an agent on it.
func (v *View) NeverReadByAgent() bool {
	return v != nil && v.Addresses != nil && v.Addresses.neverRead
}

// HasAgent reports whether an agent has written the CiliumNode or reported in it.
func (v *View) HasAgent() bool {
	if v == nil {
		return false
	}
	if v.Addresses != nil {
		return !v.Addresses.neverRead
	}
	return v.BlockAssignment.Reported() || v.BlockAssignment.HasAgent
}

// HasNodeAgent reports whether this project's node agent assigns the addresses.
func (v *View) HasNodeAgent() bool {
	return v != nil && v.BlockAssignment != nil && v.BlockAssignment.NodeAgent
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

// InUseUnreported returns the addresses in use that neither the agent's report nor pods name: the
// agent's own, and non-canonical ones, which the handshake cannot release.
func (v *View) InUseUnreported() []netip.Addr {
	if v.Addresses == nil || len(v.Addresses.NonCanonical) == 0 {
		return v.Own
	}
	return append(slices.Clone(v.Own), v.Addresses.NonCanonical...)
}

// Publishes reports whether pods may get addr from the agent.
func (v *View) Publishes(addr netip.Addr) bool {
	if v.Addresses != nil {
		_, ok := v.Addresses.Pool[addr]
		return ok
	}
	return slices.ContainsFunc(v.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// CountIn returns the number of addresses of cidr that pods may get from the agent.
func (v *View) CountIn(cidr netip.Prefix) int {
	if v.Addresses != nil {
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

// Published returns the addresses that are assigned singly, and their owners.
func (v *View) Published() map[netip.Addr]string {
	if v.Addresses == nil {
		return nil
	}
	return v.Addresses.Pool
}

// PublishedIn returns the addresses of cidr that are assigned singly, sorted.
func (v *View) PublishedIn(cidr netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for addr := range v.Published() {
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

// AssignsNone reports whether the CiliumNode assigns its agent no address, also under a key that is not canonical.
func (v *View) AssignsNone() bool {
	if v.Addresses == nil {
		return len(v.ListedInAnyPool()) == 0
	}
	return len(v.Addresses.Pool)+len(v.Addresses.NonCanonical) == 0
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

// OwnedBy reports whether a Node owns the CiliumNode.
func (v *View) OwnedBy(node *corev1.Node) bool {
	return v.original != nil && slices.ContainsFunc(v.original.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == "Node" && ref.UID == node.UID
	})
}

// KeepsToPool reports whether an agent in crd mode gives pods no address of cidr outside its pool, as it
// reports addresses in use. A report is left from an earlier run if the agent has an address of its
// own in cidr that neither the report nor the pool names: it now allocates from cidr.
func (v *View) KeepsToPool(cidr netip.Prefix) bool {
	allocates := func(addr netip.Addr) bool {
		_, used := v.Used[addr]
		return cidr.Contains(addr) && !used && !v.Publishes(addr)
	}
	return v.Addresses != nil && len(v.Used) > 0 && !slices.ContainsFunc(v.Own, allocates)
}

// At returns the CiliumNode with another resourceVersion.
func (v *View) At(version string) *View {
	view := *v
	view.ResourceVersion = version
	return &view
}
