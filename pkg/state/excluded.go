package state

import (
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Exclusions are the part of a Ledger about the addresses that no pod may have.
type Exclusions struct {
	*core
	blocks *heldBlocks
	nodes  *ciliumNodes

	// reserved are the ranges taken for other reasons than a CiliumNode.
	reserved *ipalloc.Space
	// excluded are the addresses of nodes and Services.
	excluded exclude.Set
	asked
}

// Exclude replaces the addresses of a cluster object that no pod may have. From now on no block
// that contains any of them is claimed. It returns the newly excluded addresses, and the ones no
// longer excluded.
func (e *Exclusions) Exclude(claimant exclude.Claimant, cidrs []netip.Prefix) (added, removed []netip.Prefix) {
	e.change(func() { added, removed = e.exclude(claimant, cidrs) })
	return added, removed
}

// ExcludeCiliumNode calls Exclude with the addresses that a CiliumNode names, or none if it is
// deleted: the addresses that other nodes reach its node at, and the agent's addresses that lie in
// none of the node's own blocks and CIDRs, such as one from an earlier IPAM. Without a Node, it only
// asks for them: a restore may have brought it, and the blocks of living nodes keep their addresses. It
// must be called after each change of the CiliumNode, of the node's blocks, or of the existence of its Node.
func (e *Exclusions) ExcludeCiliumNode(name string, hasNode bool) (added, removed []netip.Prefix) {
	e.change(func() {
		var addrs []netip.Addr
		ask := exclude.Ask{By: exclude.Claimant{Kind: exclude.CiliumNode, Name: name, Asks: true}}
		if cn := e.nodes.current(name); cn != nil {
			ask.Since = cn.Created
			addrs = slices.Clone(cn.Host)
			for _, addr := range cn.Own {
				if !e.isNodes(cn, addr) {
					addrs = append(addrs, addr)
				}
			}
		}
		assigned, requested := exclude.OfHost(addrs)
		if !hasNode {
			assigned = nil
			requested = exclude.Of(addrs)
		}
		ask.CIDRs = requested
		e.ask(ask)
		added, removed = e.exclude(exclude.Claimant{Kind: exclude.CiliumNode, Name: name}, assigned)
	})
	return added, removed
}

// isNodes reports whether an address lies in a block of a CiliumNode's node, or in a CIDR
// that it lists.
func (e *Exclusions) isNodes(cn *ciliumnode.View, addr netip.Addr) bool {
	for _, block := range e.blocks.byNode[cn.Name] {
		if block.CIDR.Contains(addr) {
			return true
		}
	}
	return ContainsAddr(cn.AssignedCIDRs(), addr)
}

// reserve keeps a prefix from all claims, for another reason than a CiliumNode.
func (e *Exclusions) reserve(p netip.Prefix) {
	e.space.Reserve(p)
	e.reserved.Reserve(p)
}

// unreserve undoes one reserve of a prefix.
func (e *Exclusions) unreserve(p netip.Prefix) {
	e.space.Unreserve(p)
	e.reserved.Unreserve(p)
}

func (e *Exclusions) exclude(claimant exclude.Claimant, cidrs []netip.Prefix) (added, removed []netip.Prefix) {
	added, removed, shared := e.excluded.Put(claimant, cidrs)
	e.taken = append(e.taken, append(added, shared...)...)
	e.freed = append(e.freed, removed...)
	for _, p := range added {
		e.reserve(p)
	}
	for _, p := range removed {
		e.unreserve(p)
	}
	return append(added, shared...), removed
}

// Excluded returns the addresses of nodes and Services in cidr, sorted.
func (e *Exclusions) Excluded(cidr netip.Prefix) []exclude.Range {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.withoutOwn(e.excluded.In(cidr))
}

// excludedIn returns the addresses of nodes and Services in cidr, without the ones that objects only
// ask for.
func (e *Exclusions) excludedIn(cidr netip.Prefix) []netip.Prefix {
	return exclude.CIDRs(slices.DeleteFunc(e.Excluded(cidr), exclude.Range.Asked))
}

// withoutOwn drops the addresses that an agent uses itself in its node's own blocks and CIDRs,
// though a cloud provider, or the agent, lists them among the node's addresses.
func (e *Exclusions) withoutOwn(ranges []exclude.Range) []exclude.Range {
	return slices.DeleteFunc(ranges, func(r exclude.Range) bool {
		if r.By.Kind != exclude.Node && r.By.Kind != exclude.CiliumNode {
			return false
		}
		cn := e.nodes.current(r.By.Name)
		return cn != nil && slices.Contains(cn.Own, r.CIDR.Addr()) && e.isNodes(cn, r.CIDR.Addr())
	})
}

// ExcludedFrom returns the addresses of nodes and Services that a pool, which may be
// nil, covers outside its reserved ranges, sorted by family, then address.
func (e *Exclusions) ExcludedFrom(pool *crd.Pool) []exclude.Range {
	return e.coveredBy(pool, &e.excluded)
}

// SharedWith returns the addresses that objects ask for, and that a pool, which may be nil, covers and
// nevertheless assigns to nodes, sorted likewise.
func (e *Exclusions) SharedWith(pool *crd.Pool) []exclude.Range {
	return slices.DeleteFunc(e.coveredBy(pool, &e.beyond), func(r exclude.Range) bool {
		return ipalloc.Covered(r.CIDR, exclude.CIDRs(e.Excluded(r.CIDR))) // another object withholds it
	})
}

// Beyond returns the addresses in cidr that objects ask for, and that are not withheld for them, sorted.
func (e *Exclusions) Beyond(cidr netip.Prefix) []exclude.Range {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.beyond.In(cidr)
}

func (e *Exclusions) coveredBy(pool *crd.Pool, excluded *exclude.Set) []exclude.Range {
	if pool == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []exclude.Range
	for _, f := range ipalloc.Families() {
		whole, _ := pool.FullCut(f)
		out = append(out, slices.DeleteFunc(excluded.InAll(whole.Ranges), func(r exclude.Range) bool {
			return ipalloc.Covered(r.CIDR, pool.Skipped(f))
		})...)
	}
	return e.withoutOwn(out)
}
