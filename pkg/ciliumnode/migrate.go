package ciliumnode

import (
	"context"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Retract removes all addresses of blocks from the pool, and with unlist the blocks from podCIDRs,
// conditional on the version in v: the node returns to an IPAM mode without a pool. It writes only
// if an address or block is there.
func (c *Client) Retract(ctx context.Context, v *View, blocks []netip.Prefix, unlist bool) (*View, error) {
	p := v.newPatch()
	p.Spec.IPAM.Pool = map[string]*struct{}{}
	for addr := range v.Addresses.Pool {
		if slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return b.Contains(addr) }) {
			p.Spec.IPAM.Pool[addr.String()] = nil
		}
	}
	written := v.podCIDRsAsWritten()
	podCIDRs := slices.DeleteFunc(slices.Clone(written), func(cidr netip.Prefix) bool { return unlist && slices.Contains(blocks, ipalloc.Canonical(cidr)) })
	if unlist && len(podCIDRs) < len(written) {
		p.Spec.IPAM.PodCIDRs = v.texts(podCIDRs)
	}
	if len(p.Spec.IPAM.Pool) == 0 && p.Spec.IPAM.PodCIDRs == nil {
		return v, nil
	}
	return c.write(ctx, v, "spec", p)
}

// Allocate writes the allocations of multi-pool mode, conditional on the version in v: they replace
// existing ones. It keeps the requests of agents, and the other fields of the entries.
func (c *Client) Allocate(ctx context.Context, v *View, allocations []Allocation) (*View, error) {
	return c.write(ctx, v, "spec", v.allocate(withAllocations(v.entries, allocations)))
}

// withAllocations returns entries with these CIDRs in place of theirs. It keeps which
// edge addresses go to pods: an agent restores no pod at an edge address that its entry
// does not allow.
func withAllocations(entries []poolCIDRs, allocations []Allocation) []poolCIDRs {
	out := slices.Clone(entries)
	for i := range out {
		out[i].CIDRs = nil
	}
	for _, a := range allocations {
		out = withCIDRs(out, a.CiliumPool, []netip.Prefix{a.CIDR})
	}
	return slices.DeleteFunc(out, poolCIDRs.empty)
}

// DropAllocations removes the leftovers of multi-pool mode, conditional on the version in v.
func (c *Client) DropAllocations(ctx context.Context, v *View) (*View, error) {
	if len(v.Allocated) == 0 {
		return v, nil
	}
	return c.write(ctx, v, "spec", map[string]any{
		"metadata": metadata{ResourceVersion: v.ResourceVersion},
		"spec":     map[string]any{"ipam": map[string]any{"pools": nil}},
	})
}

// ForgetRequests removes the requests of an agent in multi-pool mode, conditional on the version in
// v. Such an agent repeats them within a minute (Cilium v1.20.1, pkg/ipam/multipool_manager.go,
// refreshPoolInterval), and no other agent does.
func (c *Client) ForgetRequests(ctx context.Context, v *View) (*View, error) {
	return c.write(ctx, v, "spec", map[string]any{
		"metadata": metadata{ResourceVersion: v.ResourceVersion},
		"spec":     map[string]any{"ipam": map[string]any{"pools": map[string]any{"requested": nil}}},
	})
}

// ForgetReport removes from the status the report of an agent in crd mode, and all release entries,
// conditional on the version in v: no agent in another mode would, and later they would pass for
// current.
func (c *Client) ForgetReport(ctx context.Context, v *View) (*View, error) {
	if len(v.Used) == 0 && len(v.Release) == 0 {
		return v, nil
	}
	return c.write(ctx, v, "status", map[string]any{
		"metadata": metadata{ResourceVersion: v.ResourceVersion},
		"status":   map[string]any{"ipam": map[string]any{"used": nil, "release-ips": nil}},
	})
}
