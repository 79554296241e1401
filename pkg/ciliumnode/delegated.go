package ciliumnode

import (
	"context"
	"net/netip"
	"slices"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// viewOfNodeAgent reads a CiliumNode that a node agent reports in. Cilium's agent itself has no address of its blocks, unless
// it runs in another mode yet: then the request is its own, and the report is not of this run.
func viewOfNodeAgent(cn *ciliumv2.CiliumNode) *View {
	v := viewOfPools(cn, nil)
	w := v.BlockAssignment
	w.NodeAgent = true
	_, other := AgentFamilies(cn)
	if other.IsValid() || !isOfNodeAgent(cn.Spec.IPAM.Pools.Requested) {
		w.byDefault = [2]int{}
		v.familyDisabled = [2]bool{}
	}
	if other.IsValid() {
		return v
	}
	v.Used = readUsed(cn)
	v.Own = nil
	listed := v.ListedInAnyPool()
	for addr := range v.Used {
		if single := ipalloc.Single(addr); !ipalloc.Covered(single, listed) {
			w.Taken = append(w.Taken, single)
		}
	}
	slices.SortFunc(w.Taken, netip.Prefix.Compare)
	return v
}

// NodeBlock is a block as the node agent reads it from a CiliumNode.
type NodeBlock struct {
	CIDR netip.Prefix
	// CiliumPool is "" for the default pool.
	CiliumPool string
	// Closed: no further pod gets an address of it. The node agent takes it off the list once no pod has one.
	Closed bool
	// AllowFirst and AllowLast: pods may get its first and its last address.
	AllowFirst, AllowLast bool
}

// NodeBlocks returns the blocks in spec.ipam.pools.allocated, sorted. One that is parked is closed.
func NodeBlocks(cn *ciliumv2.CiliumNode) []NodeBlock {
	var out []NodeBlock
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		pool, closed := unparked(entry.Pool)
		if pool == defaultPool {
			pool = ""
		}
		for _, cidr := range prefixes(entry.CIDRs) {
			out = append(out, NodeBlock{cidr, pool, closed, entry.AllowFirstIP, entry.AllowLastIP})
		}
	}
	slices.SortFunc(out, func(a, b NodeBlock) int { return a.CIDR.Compare(b.CIDR) })
	return out
}

// AgentFamilies returns the families that Cilium's agent runs, by its own addresses: none before it has started. They are
// link-local in this mode (local-router-ipv4, local-router-ipv6). other is an address that is not: its agent runs in
// another mode, and assigns addresses itself.
func AgentFamilies(cn *ciliumv2.CiliumNode) (runs [2]bool, other netip.Addr) {
	for _, addr := range ownAddresses(cn) {
		if !addr.IsLinkLocalUnicast() {
			other = addr
		}
		runs[ipalloc.FamilyOf(addr)] = true
	}
	return runs, other
}

// NodeReport is what a node agent writes into its CiliumNode.
type NodeReport struct {
	// Families are the families that its node's pods get addresses of.
	Families [2]bool
	// Used are the addresses in use, with their pods.
	Used map[netip.Addr]string
	// Returned are closed blocks without an address in use. No pod gets an address of them any more.
	Returned []netip.Prefix
}

// Write writes a report as far as it differs from cn, conditional on its version. The addresses come first: once the
// CiliumNode says that its node agent runs, it shows all in use. They take the marks of release-ips away: so an operator that
// has written one knows that the report is younger.
func (r NodeReport) Write(ctx context.Context, c client.Client, cn *ciliumv2.CiliumNode) error {
	status := map[string]any{}
	if used := r.usedChanges(cn); len(used) > 0 {
		status["used"] = used
	}
	if len(cn.Status.IPAM.ReleaseIPs) > 0 {
		status["release-ips"] = nil
	}
	if len(status) > 0 {
		written, err := writeIPAM(ctx, c, cn, "status", status)
		if err != nil {
			return err
		}
		cn = written
	}
	pools := map[string]any{}
	requested := r.requests()
	if !slices.Equal(cn.Spec.IPAM.Pools.Requested, requested) {
		pools["requested"] = requested
	}
	if len(r.Returned) > 0 {
		pools["allocated"] = r.remaining(cn)
	}
	if len(pools) == 0 {
		return nil
	}
	_, err := writeIPAM(ctx, c, cn, "spec", map[string]any{"pools": pools})
	return err
}

// requests returns spec.ipam.pools.requested. It only says that the node agent runs, and for which families: the
// operator counts pods and addresses in use.
func (r NodeReport) requests() []ipamtypes.IPAMPoolRequest {
	request := ipamtypes.IPAMPoolRequest{Pool: defaultPool}
	if r.Families[ipalloc.IPv4] {
		request.Needed.IPv4Addrs = 1
	}
	if r.Families[ipalloc.IPv6] {
		request.Needed.IPv6Addrs = 1
	}
	return []ipamtypes.IPAMPoolRequest{request}
}

// isOfNodeAgent reports whether requests may be those of a node agent, not of Cilium's agent in multi-pool mode before.
func isOfNodeAgent(requests []ipamtypes.IPAMPoolRequest) bool {
	return len(requests) == 1 && requests[0].Pool == defaultPool && requests[0].Needed.IPv4Addrs <= 1 && requests[0].Needed.IPv6Addrs <= 1
}

// remaining returns spec.ipam.pools.allocated without the returned blocks.
func (r NodeReport) remaining(cn *ciliumv2.CiliumNode) []ipamtypes.IPAMPoolAllocation {
	out := []ipamtypes.IPAMPoolAllocation{}
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		_, closed := unparked(entry.Pool)
		if closed {
			entry.CIDRs = slices.DeleteFunc(slices.Clone(entry.CIDRs), func(p iputil.Prefix) bool {
				return slices.Contains(r.Returned, ipalloc.Canonical(p.Prefix))
			})
		}
		if !closed || len(entry.CIDRs) > 0 {
			out = append(out, entry)
		}
	}
	return out
}

// usedChanges returns the changes of status.ipam.used, as a merge patch.
func (r NodeReport) usedChanges(cn *ciliumv2.CiliumNode) map[string]any {
	changes := map[string]any{}
	for key := range cn.Status.IPAM.Used {
		addr, _ := ipalloc.ParseAddr(key)
		if _, used := r.Used[addr]; !used || addr.String() != key {
			changes[key] = nil
		}
	}
	for addr, owner := range r.Used {
		if ip, ok := cn.Status.IPAM.Used[addr.String()]; !ok || ip.Owner != owner {
			changes[addr.String()] = ipamtypes.AllocationIP{Owner: owner}
		}
	}
	return changes
}

// writeIPAM patches ipam in a section, spec or status, conditional on the version of cn, and returns the CiliumNode as written.
func writeIPAM(ctx context.Context, c client.Client, cn *ciliumv2.CiliumNode, section string, ipam map[string]any) (*ciliumv2.CiliumNode, error) {
	written := &ciliumv2.CiliumNode{}
	written.Name = cn.Name
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": cn.ResourceVersion}, section: map[string]any{"ipam": ipam}}
	return written, send(ctx, c, written, section, patch)
}
