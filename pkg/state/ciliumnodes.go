package state

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// ciliumNodes is the ledger's memory of CiliumNodes, by name.
type ciliumNodes struct {
	*core
	blocks *heldBlocks
	seen   map[string]*seenNode
}

// seenNode is a CiliumNode until it is forgotten.
type seenNode struct {
	// view is the latest version known, delivered by the watch or returned by a write of this
	// process.
	view *ciliumnode.View
	// gone: it is deleted, and may come back.
	gone bool
	// named are the prefixes taken because the CiliumNode names them: its podCIDRs, the
	// allocations of multi-pool mode, and, outside of these and its blocks, the addresses in its
	// pool, reported in use or the agent's own, including stale ones.
	named []netip.Prefix
	// restored: this process restored it after its agent had reported its usage. Such an agent runs
	// in our mode, even if the new CiliumNode does not show that yet.
	restored bool
	// recreated: it was deleted, and created again under an agent that may run on. That agent may
	// have seen it without CIDRs that pods use.
	recreated bool
}

// current returns the latest version of a CiliumNode, or nil if it is deleted or unknown.
func (c *ciliumNodes) current(name string) *ciliumnode.View {
	if n := c.seen[name]; n != nil && !n.gone {
		return n.view
	}
	return nil
}

// store stores a version of a CiliumNode, unless a later one, or its deletion, is known.
func (c *ciliumNodes) store(cn *ciliumnode.View, deleted bool) (old *ciliumnode.View, stored bool) {
	n := c.seen[cn.Name]
	if n == nil {
		n = &seenNode{}
		c.seen[cn.Name] = n
	}
	old = n.view
	if old != nil && !reached(cn.ResourceVersion, old.ResourceVersion) {
		return old, false
	}
	same := old == nil || old.UID == cn.UID
	n.view = cn
	n.gone = deleted
	n.restored = n.restored && same
	n.recreated = n.recreated || !same
	return old, true
}

// UpsertCiliumNode stores a CiliumNode that the watch has delivered or that a write has
// returned, unless a later version is known, as either may be late. It reports whether the
// addresses taken because of it have changed.
func (l *Ledger) UpsertCiliumNode(cn *ciliumnode.View) (changed bool) {
	l.change(func() {
		old, stored := l.nodes.store(cn, false)
		if !stored {
			return
		}
		if old != nil && old.FamiliesDisabled() != cn.FamiliesDisabled() { // pools report this
			for _, block := range l.blocks.byNode[cn.Name] {
				l.taken = append(l.taken, block.CIDR)
			}
		}
		l.nodes.countUsed(cn.Name, l.blocks.byNode[cn.Name])
		changed = l.nodes.setNamed(cn.Name, l.nodes.readNamed(cn.Name))
	})
	return changed
}

// countUsed counts the addresses of blocks of a node that its CiliumNode, or the last state of a
// deleted one, reports in use.
func (c *ciliumNodes) countUsed(node string, blocks []*heldBlock) {
	n := c.seen[node]
	for _, block := range blocks {
		used := int64(0)
		if n != nil && n.view.Addresses != nil {
			for addr := range n.view.Used {
				if block.CIDR.Contains(addr) {
					used++
				}
			}
		}
		c.blocks.setUsed(block, used)
	}
}

// RemoveCiliumNode handles the deletion of a CiliumNode at its resourceVersion. The addresses it
// named stay taken until it is back or ForgetCiliumNode is called.
func (l *Ledger) RemoveCiliumNode(cn *ciliumnode.View) {
	l.change(func() { l.nodes.store(cn, true) })
}

// CiliumNodes returns the names of all CiliumNodes, including deleted ones before they are
// forgotten.
func (l *Ledger) CiliumNodes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.nodes.seen))
}

// MissingCiliumNodes returns the known CiliumNodes that a list shows to be deleted: older than the
// list's version, and with a UID that is not among listed. The result carries the list's
// resourceVersion.
func (l *Ledger) MissingCiliumNodes(listed map[types.UID]bool, version string) []*ciliumnode.View {
	var out []*ciliumnode.View
	inParts(&l.mu, l.CiliumNodes(), func(name string) {
		cn := l.nodes.current(name)
		if cn != nil && !listed[cn.UID] && reached(version, cn.ResourceVersion) {
			out = append(out, cn.At(version))
		}
	})
	return out
}

// CiliumNode returns a CiliumNode in the latest version known, or nil.
func (l *Ledger) CiliumNode(name string) *ciliumnode.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes.current(name)
}

// CiliumNodeAt returns the View of obj if exactly this version is the latest known, and
// otherwise nil. Each version that this process writes arrives twice, in the response to the write
// and from the watch, in either order: the second one need not be read again.
func (l *Ledger) CiliumNodeAt(obj metav1.Object) *ciliumnode.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.nodes.current(obj.GetName())
	version := obj.GetResourceVersion()
	if seen == nil || version == "" || seen.ResourceVersion != version || seen.UID != obj.GetUID() {
		return nil
	}
	return seen
}

// LastCiliumNode returns the last known state of a deleted CiliumNode, or nil.
func (l *Ledger) LastCiliumNode(name string) *ciliumnode.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.nodes.seen[name]; n != nil && n.gone {
		return n.view
	}
	return nil
}

// MarkRestored records that a CiliumNode was restored after its agent had reported.
func (l *Ledger) MarkRestored(name string, uid types.UID) {
	l.change(func() {
		if n := l.nodes.seen[name]; n != nil && n.view.UID == uid {
			n.restored = true
		}
	})
}

// ForgetCiliumNode removes a CiliumNode that will not come back. It reports whether
// something it named is no longer taken. It keeps a CiliumNode that the watch has delivered
// since the caller's read.
func (l *Ledger) ForgetCiliumNode(name string) (changed bool) {
	l.change(func() {
		if l.nodes.current(name) != nil {
			return
		}
		maps.DeleteFunc(l.claims.closed, func(c closedOn, _ expand.Closed) bool { return c.node == name })
		changed = l.nodes.setNamed(name, nil)
		delete(l.nodes.seen, name)
		l.nodes.countUsed(name, l.blocks.byNode[name])
	})
	return changed
}

// MarkFenced records that the CiliumNode of a block has changed since the block was
// seen cooling down.
func (l *Ledger) MarkFenced(b crd.Block) {
	l.change(func() {
		if block, ok := l.blocks.byCIDR[b.CIDR]; ok && block.UID == b.UID {
			block.fenced = b.ResourceVersion
		}
	})
}

// Fenced reports whether MarkFenced was called for the block in its current version.
func (l *Ledger) Fenced(b crd.Block) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	block, ok := l.blocks.byCIDR[b.CIDR]
	return ok && block.UID == b.UID && block.fenced != "" && block.fenced == b.ResourceVersion
}

// ListedFor returns the CIDRs that CiliumNodes list for a Cilium pool, including deleted
// CiliumNodes that may be restored. It walks them all.
func (l *Ledger) ListedFor(ciliumPool string) []netip.Prefix {
	var out []netip.Prefix
	inParts(&l.mu, l.CiliumNodes(), func(name string) {
		n, known := l.nodes.seen[name]
		if !known {
			return
		}
		for _, a := range n.view.Allocated {
			if a.CiliumPool == ciliumPool {
				out = append(out, a.CIDR.Masked())
			}
		}
	})
	return out
}

// reached reports whether resourceVersion seen is at or past want. Both must belong to the
// same resource. Incomparable versions count as reached: the fences in the API server hold
// regardless, at the cost of wasted work.
func reached(seen, want string) bool {
	if want == "" || seen == want {
		return true
	}
	if seen == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(seen, want)
	return err != nil || order >= 0
}

// withholds reports whether a CIDR that a CiliumNode lists is taken as a whole. Otherwise only
// the addresses that the CiliumNode names are taken, so that one wrong entry cannot take
// every pool from all nodes:
//
//	more addresses than any block can have   no
//	more than a block of crd mode can have   unless the agent runs in crd mode, where it allocates
//	                                         from its pool alone, or another node has a block there
//	otherwise                                unless both
//
// A block inside such a CIDR has a more specific route.
func (c *ciliumNodes) withholds(cn *ciliumnode.View, cidr netip.Prefix) bool {
	if ipalloc.TooLarge(cidr, true) {
		return false
	}
	alone := !slices.ContainsFunc(c.space.Overlapping(cidr), func(h ipalloc.Held) bool {
		return h.Owner.Node != cn.Name && ipalloc.Contains(cidr, h.CIDR)
	})
	if ipalloc.TooLarge(cidr, false) {
		return alone && !cn.KeepsToPool(cidr)
	}
	return alone || !cn.KeepsToPool(cidr)
}

func (c *ciliumNodes) readNamed(node string) []netip.Prefix {
	if c.seen[node] == nil {
		return nil
	}
	cn := c.seen[node].view
	taken := slices.DeleteFunc(cn.AssignedCIDRs(), func(p netip.Prefix) bool { return !c.withholds(cn, p) })
	covers := slices.Clone(taken)
	for _, block := range c.blocks.byNode[node] {
		covers = append(covers, block.CIDR)
	}
	for addr := range cn.NamedAddresses() {
		if !ContainsAddr(covers, addr) {
			taken = append(taken, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	if cn.BlockAssignment != nil {
		for _, p := range cn.BlockAssignment.Taken {
			if c.withholds(cn, p) {
				taken = append(taken, p)
			}
		}
	}
	slices.SortFunc(taken, netip.Prefix.Compare)
	return slices.Compact(taken)
}

// Withholder is a CiliumNode that names addresses outside its node's blocks, so that no node can
// claim this many blocks of a pool.
type Withholder struct {
	CiliumNode string
	Blocks     uint64
}

// Withholders returns the CiliumNodes that withhold blocks from a pool, most blocks first. It
// walks all CiliumNodes.
func (l *Ledger) Withholders(cut ipalloc.Cut) []Withholder {
	l.mu.Lock()
	names := l.nodes.namers("")
	l.mu.Unlock()
	var out []Withholder
	inParts(&l.mu, names, func(name string) {
		if n := l.nodes.withheldBy(name, cut); n > 0 {
			out = append(out, Withholder{name, n})
		}
	})
	slices.SortFunc(out, func(a, b Withholder) int {
		return cmp.Or(cmp.Compare(b.Blocks, a.Blocks), cmp.Compare(a.CiliumNode, b.CiliumNode))
	})
	return out
}

// withheldBy counts the blocks of cut that a CiliumNode withholds.
func (c *ciliumNodes) withheldBy(name string, cut ipalloc.Cut) (n uint64) {
	counted := map[netip.Prefix]bool{}
	for _, p := range c.namedBy(name) {
		for _, parent := range cut.Ranges {
			if !parent.Overlaps(p) || isHeld(c.space, p) {
				continue
			}
			part := p
			if part.Bits() < parent.Bits() {
				part = parent
			}
			if part.Bits() < cut.BlockBits {
				total := ipalloc.Cut{Ranges: []netip.Prefix{part}, BlockBits: cut.BlockBits}.Total()
				n += total - min(total, uint64(len(c.space.Overlapping(part))))
				continue
			}
			block := netip.PrefixFrom(part.Addr(), cut.BlockBits).Masked()
			if !counted[block] && !isHeld(c.space, block) {
				counted[block] = true
				n++
			}
		}
	}
	return n
}

// NamedElsewhere returns the parts of cidr that other nodes' CiliumNodes name, outside their own
// blocks. It walks all of them if another one names a part of cidr, which is rare. Concurrent
// changes may or may not be included.
func (l *Ledger) NamedElsewhere(node string, cidr netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	inParts(&l.mu, l.mayName(node, cidr), func(name string) {
		for _, p := range l.nodes.namedBy(name) {
			if p.Overlaps(cidr) {
				out = append(out, p)
			}
		}
	})
	return out
}

// mayName returns the other nodes, if the CiliumNode of one of them names a part of cidr.
func (l *Ledger) mayName(node string, cidr netip.Prefix) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ownBlocks := 0
	for _, p := range l.nodes.namedBy(node) {
		if p.Overlaps(cidr) {
			ownBlocks++
		}
	}
	if l.space.Reservations(cidr)-l.Exclusions.reserved.Reservations(cidr) == ownBlocks {
		return nil
	}
	return l.nodes.namers(node)
}

// namers returns the nodes with a CiliumNode that names prefixes, except one.
func (c *ciliumNodes) namers(except string) []string {
	var names []string
	for name, n := range c.seen {
		if name != except && len(n.named) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (c *ciliumNodes) namedBy(node string) []netip.Prefix {
	if n := c.seen[node]; n != nil {
		return n.named
	}
	return nil
}

func (c *ciliumNodes) setNamed(name string, named []netip.Prefix) (changed bool) {
	old := c.namedBy(name)
	if slices.Equal(old, named) {
		return false
	}
	for _, p := range named {
		c.space.Reserve(p)
	}
	for _, p := range old {
		c.space.Unreserve(p)
	}
	c.taken = append(c.taken, c.missingFrom(old, named)...)
	c.freed = append(c.freed, c.missingFrom(named, old)...)
	c.contest(name, old, named)
	c.contest(name, named, old)
	c.seen[name].named = named
	return true
}

// contest records the prefixes of list that are not in sorted and that share addresses with blocks of other nodes than
// name: these publish none of such addresses unless it is in use.
func (c *ciliumNodes) contest(name string, sorted, list []netip.Prefix) {
	isOther := func(block ipalloc.Held) bool { return block.Owner.Node != name }
	for _, p := range list {
		if _, found := slices.BinarySearchFunc(sorted, p, netip.Prefix.Compare); !found && slices.ContainsFunc(heldIn(c.space, p), isOther) {
			c.contested = append(c.contested, p)
		}
	}
}

// missingFrom returns the prefixes of list that are not in sorted and that no block or
// claim covers. A node's own blocks, which its podCIDRs name as well, make no difference.
func (c *ciliumNodes) missingFrom(sorted, list []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if _, found := slices.BinarySearchFunc(sorted, p, netip.Prefix.Compare); !found && !isHeld(c.space, p) {
			out = append(out, p)
		}
	}
	return out
}
