package ciliumnode

import (
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Change is a change of a CiliumNode's spec.
type Change struct {
	// Publish and Remove are addresses to add to and remove from the pool.
	Publish, Remove []netip.Addr
	// Assign are blocks to assign to an agent that is assigned whole blocks, if they are among Blocks.
	Assign []netip.Prefix
	// Blocks are all blocks the node holds. podCIDRs lists the ones with an address in the pool,
	// and its other entries stay.
	Blocks []netip.Prefix
	// CiliumPools are the Cilium pools that Blocks are for, other than the default one.
	CiliumPools map[netip.Prefix]string
	// Park are listed blocks to park, and Unpark parked ones to list again under their
	// own Cilium pool, in multi-pool mode.
	Park, Unpark []netip.Prefix
	// Forget are Cilium pools, "" being the default one, that get an entry without CIDRs if they have none, in
	// multi-pool mode.
	Forget []string

	// untrack: in crd mode, the patch also removes metadata.managedFields, if no client needs them.
	untrack bool
}

// Add adds a block that the node holds, for a Cilium pool; "": the default.
func (c *Change) Add(block netip.Prefix, ciliumPool string) {
	c.Blocks = append(c.Blocks, block)
	if ciliumPool == "" {
		return
	}
	if c.CiliumPools == nil {
		c.CiliumPools = map[netip.Prefix]string{}
	}
	c.CiliumPools[block] = ciliumPool
}

// Restore adds what an earlier version of the CiliumNode published or assigned of a block.
func (c *Change) Restore(last *View, block netip.Prefix) {
	c.Publish = append(c.Publish, last.PublishedIn(block)...)
	if last.BlockAssignment != nil && last.CountIn(block) > 0 {
		c.Assign = append(c.Assign, block)
	}
}

// patch is a JSON merge patch of a CiliumNode, or of a Node in its place.
type patch struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		IPAM struct {
			Pool     map[string]*struct{} `json:"pool,omitempty"`
			PodCIDRs []string             `json:"podCIDRs,omitzero"`
			// Pools has one key: allocated.
			Pools map[string][]poolCIDRs `json:"pools,omitempty"`
		} `json:"ipam"`
	} `json:"spec,omitzero"`
	Status struct {
		IPAM struct {
			ReleaseIPs map[string]*expand.ReleaseStatus `json:"release-ips"`
		} `json:"ipam"`
	} `json:"status,omitzero"`
}

type metadata struct {
	ResourceVersion string `json:"resourceVersion"`
	// ManagedFields, a list of one empty entry, removes them. From then on the API server
	// tracks no writes of the object, until a client applies it (k8s.io/apimachinery v0.36.3,
	// util/managedfields/internal: isResetManagedFields, skipNonAppliedManager).
	ManagedFields []struct{}        `json:"managedFields,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// newPatch returns an empty patch that conflicts with any write after the version in v.
func (v *View) newPatch() patch { return patch{Metadata: metadata{ResourceVersion: v.ResourceVersion}} }

// patch returns the JSON merge patch that writes c to the CiliumNode in v, of crd mode, or nil if the
// object needs no change.
func (c Change) patch(v *View) *patch {
	a := v.Addresses
	p := v.newPatch()
	if c.untrack && a.tracked {
		p.Metadata.ManagedFields = []struct{}{{}}
	}
	entries := make(map[string]*struct{}, len(c.Publish)+len(c.Remove))
	added := map[netip.Addr]bool{}
	removed := map[netip.Addr]bool{}
	for _, addr := range c.Publish {
		if _, ok := a.Pool[addr]; !ok && !slices.Contains(a.NonCanonical, addr) {
			entries[addr.String()] = &struct{}{}
			added[addr] = true
		}
	}
	for _, addr := range c.Remove {
		if _, ok := a.Pool[addr]; ok {
			entries[addr.String()] = nil
			removed[addr] = true
		}
	}
	written := v.podCIDRsAsWritten()
	cidrs := c.podCIDRs(v, written, added, removed)
	if len(entries) == 0 && slices.Equal(cidrs, written) {
		return nil
	}
	p.Spec.IPAM.Pool = entries
	if !slices.Equal(cidrs, written) {
		p.Spec.IPAM.PodCIDRs = v.texts(cidrs)
	}
	return &p
}

// podCIDRsAsWritten returns spec.ipam.podCIDRs of crd mode, in the form in which they are written.
func (v *View) podCIDRsAsWritten() []netip.Prefix {
	if v.Addresses.written != nil {
		return v.Addresses.written
	}
	return v.PodCIDRs
}

// podCIDRs keeps the order of the list and the form of its entries, so that a change moves no
// other route, and appends new blocks. A block is listed exactly while an address of it is in the
// pool.
func (c Change) podCIDRs(v *View, written []netip.Prefix, added, removed map[netip.Addr]bool) []netip.Prefix {
	published := make(map[netip.Prefix]bool, len(c.Blocks))
	for _, cidr := range c.Blocks {
		published[cidr] = false
	}
	mark := func(addr netip.Addr) {
		for _, cidr := range c.Blocks {
			if cidr.Contains(addr) {
				published[cidr] = true
			}
		}
	}
	for addr := range v.Addresses.Pool {
		if !removed[addr] {
			mark(addr)
		}
	}
	for addr := range added {
		mark(addr)
	}
	out := []netip.Prefix{}
	for _, cidr := range written {
		if stays, ours := published[ipalloc.Canonical(cidr)]; !ours || stays {
			out = append(out, cidr)
		}
	}
	for _, cidr := range sorted(c.Blocks) {
		if published[cidr] && !v.ListsForDefaultPool(cidr) {
			out = append(out, cidr)
		}
	}
	return out
}

// ReleaseChange is a change of the release handshake's entries in a CiliumNode's status.
type ReleaseChange struct {
	// Mark are addresses to mark for release: those without an entry, and those retired.
	Mark []netip.Addr
	// Retire are the agent's own addresses that it should not take again when it restarts:
	// their entries become released.
	Retire []netip.Addr
	// Clear are addresses with entries to delete.
	Clear []netip.Addr
}

// patch returns the JSON merge patch of the status that writes e to the CiliumNode in v, or nil if
// the status needs no change.
func (e ReleaseChange) patch(v *View) *patch {
	p := v.newPatch()
	entries := make(map[string]*expand.ReleaseStatus, len(e.Mark)+len(e.Retire)+len(e.Clear))
	for _, addr := range e.Clear {
		if _, ok := v.Release[addr]; ok {
			entries[addr.String()] = nil
		}
	}
	marked := expand.Marked
	released := expand.Released
	for _, addr := range e.Mark {
		if entry, ok := v.Release[addr]; !ok || entry == released {
			entries[addr.String()] = &marked
		}
	}
	for _, addr := range e.Retire {
		if _, ok := v.Release[addr]; !ok {
			entries[addr.String()] = &released
		}
	}
	if len(entries) == 0 {
		return nil
	}
	p.Status.IPAM.ReleaseIPs = entries
	return &p
}

func sorted(cidrs []netip.Prefix) []netip.Prefix {
	return slices.SortedFunc(slices.Values(cidrs), netip.Prefix.Compare)
}
