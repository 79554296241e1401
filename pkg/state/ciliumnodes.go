package state

import (
	"maps"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// NotRunning returns the nodes with a block of a pool and an agent that does not run a family,
// sorted. It walks the blocks of the pool.
func (l *Ledger) NotRunning(f ipalloc.Family, pool string) []string {
	l.mu.Lock()
	cuts := l.cuts
	l.mu.Unlock()
	var nodes, out []string
	var lacking []*ciliumnode.View
	for b := range l.PoolBlocks(pool) {
		nodes = append(nodes, b.Node)
	}
	inParts(&l.mu, nodes, func(node string) {
		if cn := l.current(node); cn.FamilyDisabled(f) {
			lacking = append(lacking, cn)
		}
	})
	inPool := func(addr netip.Addr) bool {
		return slices.ContainsFunc(cuts, func(c ipalloc.Cut) bool { return ContainsAddr(c.Ranges, addr) })
	}
	for _, cn := range lacking {
		if len(cn.Stale) == 0 || cn.WithConfigured(inPool).FamilyDisabled(f) {
			out = append(out, cn.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ciliumNodes is the ledger's memory of CiliumNodes, by name.
type ciliumNodes struct {
	*core
	seen map[string]*seenNode
}

// seenNode is a CiliumNode until it is forgotten.
type seenNode struct {
	// view is the latest version known, delivered by the watch or returned by a write of this
	// process.
	view *ciliumnode.View
	// gone: it is deleted, and may come back.
	gone bool
	// foreign are the prefixes taken because the CiliumNode names them: its podCIDRs, the
	// allocations of multi-pool mode, and, outside of these and its blocks, the addresses in its
	// pool, reported in use or the agent's own, including stale ones.
	foreign []netip.Prefix
	// restored: this process restored it after its agent had reported its usage. Such an agent runs
	// in our mode, even if the new CiliumNode does not show that yet.
	restored bool
}

// current returns the latest version of a CiliumNode, or nil if it is deleted or unknown.
func (c *ciliumNodes) current(name string) *ciliumnode.View {
	if n := c.seen[name]; n != nil && !n.gone {
		return n.view
	}
	return nil
}

// store stores a version of a CiliumNode, unless a later one, or its deletion, is known.
func (c *ciliumNodes) store(cn *ciliumnode.View, gone bool) (was *ciliumnode.View, stored bool) {
	n := c.seen[cn.Name]
	if n == nil {
		n = &seenNode{}
		c.seen[cn.Name] = n
	}
	was = n.view
	if was != nil && !reached(cn.ResourceVersion, was.ResourceVersion) {
		return was, false
	}
	n.view, n.gone, n.restored = cn, gone, n.restored && was.UID == cn.UID
	return was, true
}

// UpsertCiliumNode stores a CiliumNode that the watch has delivered or that a write has
// returned, unless a later version is known, as either may be late. It reports whether the
// addresses taken because of it have changed.
func (l *Ledger) UpsertCiliumNode(cn *ciliumnode.View) (changed bool) {
	l.mu.Lock()
	defer l.unlock()
	was, stored := l.store(cn, false)
	if !stored {
		return false
	}
	if was != nil && was.FamiliesDisabled() != cn.FamiliesDisabled() { // pools report this
		for _, held := range l.byNode[cn.Name] {
			l.taken = append(l.taken, held.CIDR)
		}
	}
	return l.setForeign(cn.Name, l.foreignOf(cn.Name))
}

// RemoveCiliumNode handles the deletion of a CiliumNode at its resourceVersion. The addresses it
// named stay taken until it is back or ForgetCiliumNode is called.
func (c *ciliumNodes) RemoveCiliumNode(cn *ciliumnode.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(cn, true)
}

// CiliumNodes returns the names of all CiliumNodes, including deleted ones before they are
// forgotten.
func (c *ciliumNodes) CiliumNodes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.seen))
}

// MissingCiliumNodes returns the known CiliumNodes that a list shows to be deleted: older than the
// list's version, and with a UID that is not among listed. The result carries the list's
// resourceVersion.
func (c *ciliumNodes) MissingCiliumNodes(listed map[types.UID]bool, version string) []*ciliumnode.View {
	var out []*ciliumnode.View
	inParts(&c.mu, c.CiliumNodes(), func(name string) {
		cn := c.current(name)
		if cn != nil && !listed[cn.UID] && reached(version, cn.ResourceVersion) {
			out = append(out, cn.At(version))
		}
	})
	return out
}

// CiliumNode returns a CiliumNode in the latest version known, or nil.
func (c *ciliumNodes) CiliumNode(name string) *ciliumnode.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current(name)
}

// CiliumNodeAt returns the View of obj if exactly this version is the latest known, and
// otherwise nil. Each version that this process writes arrives twice, in the response to the write
// and from the watch, in either order: the second one need not be read again.
func (c *ciliumNodes) CiliumNodeAt(obj metav1.Object) *ciliumnode.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, version := c.current(obj.GetName()), obj.GetResourceVersion()
	if seen == nil || version == "" || seen.ResourceVersion != version || seen.UID != obj.GetUID() {
		return nil
	}
	return seen
}

// LastCiliumNode returns the last known state of a deleted CiliumNode, or nil.
func (c *ciliumNodes) LastCiliumNode(name string) *ciliumnode.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.seen[name]; n != nil && n.gone {
		return n.view
	}
	return nil
}

// MarkRestored records that a CiliumNode was restored after its agent had reported.
func (c *ciliumNodes) MarkRestored(name string, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.seen[name]; n != nil && n.view.UID == uid {
		n.restored = true
	}
}

// ForgetCiliumNode removes a CiliumNode that will not come back. It reports whether
// something it named is no longer taken. It keeps a CiliumNode that the watch has delivered
// since the caller's read.
func (l *Ledger) ForgetCiliumNode(name string) (changed bool) {
	l.mu.Lock()
	defer l.unlock()
	if l.current(name) != nil {
		return false
	}
	maps.DeleteFunc(l.closed, func(_ netip.Prefix, b crd.Block) bool { return b.Node == name })
	changed = l.setForeign(name, nil)
	delete(l.seen, name)
	return changed
}

// MarkFenced records that the CiliumNode of a block has changed since the block was
// seen cooling down.
func (l *Ledger) MarkFenced(b crd.Block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held, ok := l.blocks[b.CIDR]; ok && held.UID == b.UID {
		held.fenced = b.ResourceVersion
	}
}

// Fenced reports whether MarkFenced was called for the block in its current version.
func (l *Ledger) Fenced(b crd.Block) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held, ok := l.blocks[b.CIDR]
	return ok && held.UID == b.UID && held.fenced != "" && held.fenced == b.ResourceVersion
}

// ListedFor returns the CIDRs that CiliumNodes list for a Cilium pool, including deleted
// CiliumNodes that may be restored. It walks them all.
func (c *ciliumNodes) ListedFor(ciliumPool string) []netip.Prefix {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []netip.Prefix
	for _, n := range c.seen {
		for _, a := range n.view.Allocated {
			if a.Pool == ciliumPool {
				out = append(out, a.CIDR.Masked())
			}
		}
	}
	return out
}

// HeldElsewhere returns the blocks of other nodes that share an address with any prefix in
// named.
func (l *Ledger) HeldElsewhere(node string, named []netip.Prefix) []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []netip.Prefix
	for _, p := range named {
		if b, held := l.blocks[p]; held && b.Node != node {
			out = append(out, p)
		}
		for _, held := range l.space.Overlapping(p) {
			if held.Owner.Node != node && !slices.Contains(out, held.CIDR) {
				out = append(out, held.CIDR)
			}
		}
	}
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
