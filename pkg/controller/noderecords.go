package controller

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// nodeRecords is what the ledger remembers of CiliumNodes.
type nodeRecords struct {
	// foreign is what is taken because a CiliumNode names it: its podCIDRs, what
	// multi-pool mode has allocated, and addresses in its pool or reported in use
	// outside them and its blocks.
	foreign map[string][]netip.Prefix
	// seen are CiliumNodes as the watch last showed them, of which foreign is
	// made, and gone says which of them it has shown to be deleted.
	seen map[string]*ciliumnode.Kept
	gone map[string]bool
	// written is the resourceVersion of this process's last write to each.
	written map[string]string
	// torn are blocks that went while the watch of their CiliumNode had yet to show
	// this process's last write to it: it may name them.
	torn map[string][]netip.Prefix
	// moved are the blocks that cool down, by UID, whose CiliumNode this process has
	// changed since: an older patch of it conflicts. In the version they had then, as
	// one that serves meanwhile may be published again.
	moved map[types.UID]string
}

func newNodeRecords() nodeRecords {
	return nodeRecords{
		foreign: map[string][]netip.Prefix{},
		seen:    map[string]*ciliumnode.Kept{},
		gone:    map[string]bool{},
		written: map[string]string{},
		torn:    map[string][]netip.Prefix{},
		moved:   map[types.UID]string{},
	}
}

// ObservedNode takes in a CiliumNode that the watch shows. It reports whether
// what is taken because of it has changed.
func (l *Ledger) ObservedNode(cn *ciliumnode.Kept) (changed bool) {
	l.mu.Lock()
	defer l.unlock()
	delete(l.nodes.gone, cn.Name)
	l.nodes.seen[cn.Name] = cn
	if reached(cn.ResourceVersion, l.nodes.written[cn.Name]) {
		delete(l.nodes.torn, cn.Name)
	}
	return l.setForeign(cn.Name, l.foreignOf(cn.Name))
}

// GoneNode takes in a CiliumNode that the watch shows to be deleted. What it
// named stays taken until it is back or ForgetNode is called.
func (l *Ledger) GoneNode(cn *ciliumnode.Kept) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes.seen[cn.Name] = cn
	l.nodes.gone[cn.Name] = true
	if reached(cn.ResourceVersion, l.nodes.written[cn.Name]) {
		delete(l.nodes.written, cn.Name)
	}
}

// missingNodes are the CiliumNodes known whose UID is not among listed.
func (l *Ledger) missingNodes(listed map[types.UID]bool) []*ciliumnode.Kept {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*ciliumnode.Kept
	for name, cn := range l.nodes.seen {
		if !l.nodes.gone[name] && !listed[cn.UID] {
			out = append(out, cn)
		}
	}
	return out
}

// Node is a CiliumNode as the watch last showed it, or nil.
func (l *Ledger) Node(name string) *ciliumnode.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seen := l.nodes.seen[name]; seen != nil && !l.nodes.gone[name] {
		return seen.View
	}
	return nil
}

// LastNode is a deleted CiliumNode as it was last seen, or nil.
func (l *Ledger) LastNode(name string) *ciliumnode.Kept {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.nodes.gone[name] {
		return nil
	}
	return l.nodes.seen[name]
}

// Unwrite forgets this process's last write to a CiliumNode that is gone.
func (l *Ledger) Unwrite(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes.written, name)
}

// ForgetNode forgets a CiliumNode that is gone for good. It reports whether
// something it named is no longer taken. One that the watch has shown since the
// caller looked stays known.
func (l *Ledger) ForgetNode(name string) (changed bool) {
	l.mu.Lock()
	defer l.unlock()
	if l.nodes.seen[name] != nil && !l.nodes.gone[name] {
		return false
	}
	delete(l.nodes.gone, name)
	delete(l.nodes.written, name)
	delete(l.nodes.seen, name)
	delete(l.nodes.torn, name)
	return l.setForeign(name, nil)
}

// WroteNode notes this process's own write to a CiliumNode.
func (l *Ledger) WroteNode(name, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes.written[name] = later(l.nodes.written[name], version)
}

// Behind reports whether version of a CiliumNode, "" for none, is older than
// this process's own last write to it: nothing may be decided on it.
func (l *Ledger) Behind(name, version string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !reached(version, l.nodes.written[name])
}

// SetMoved notes that the CiliumNode of a block has changed since the block was
// seen to cool down.
func (l *Ledger) SetMoved(b crd.Block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes.moved[b.UID] = b.ResourceVersion
}

// Moved reports whether SetMoved was called for the block as it is.
func (l *Ledger) Moved(b crd.Block) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	version, noted := l.nodes.moved[b.UID]
	return noted && version == b.ResourceVersion
}

// tear notes a block that went, if it may be named where the watch has yet to look.
func (l *Ledger) tear(b crd.Block) {
	version := ""
	if cn := l.nodes.seen[b.Node]; cn != nil {
		version = cn.ResourceVersion
	}
	if !reached(version, l.nodes.written[b.Node]) {
		l.nodes.torn[b.Node] = append(l.nodes.torn[b.Node], b.CIDR)
	}
}

func (l *Ledger) foreignOf(node string) []netip.Prefix {
	torn := l.nodes.torn[node]
	if l.nodes.seen[node] == nil {
		return slices.Clone(torn)
	}
	cn := l.nodes.seen[node].View
	taken := append(cn.Given(), torn...)
	covers := slices.Clone(taken)
	for cidr := range l.byNode[node] {
		covers = append(covers, cidr)
	}
	for _, addrs := range []iter.Seq[netip.Addr]{maps.Keys(cn.Pool), slices.Values(cn.Odd), maps.Keys(cn.Used)} {
		for addr := range addrs {
			if !anyContains(covers, addr) {
				taken = append(taken, netip.PrefixFrom(addr, addr.BitLen()))
			}
		}
	}
	if cn.Whole != nil {
		taken = append(taken, cn.Whole.Taken...)
	}
	slices.SortFunc(taken, netip.Prefix.Compare)
	return slices.Compact(taken)
}

// NamedElsewhere are what CiliumNodes of other nodes name, outside their own
// blocks, of cidr. It walks them all: for the rare case that a block is
// published again.
func (l *Ledger) NamedElsewhere(node string, cidr netip.Prefix) []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []netip.Prefix
	for name, taken := range l.nodes.foreign {
		if name == node {
			continue
		}
		for _, p := range taken {
			if p.Overlaps(cidr) {
				out = append(out, p)
			}
		}
	}
	return out
}

// ListedFor are the CIDRs that CiliumNodes list for one of Cilium's pools, also
// those of deleted ones that may be put back. It walks them all.
func (l *Ledger) ListedFor(ciliumPool string) []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []netip.Prefix
	for _, cn := range l.nodes.seen {
		for _, a := range cn.Allocated {
			if a.Pool == ciliumPool {
				out = append(out, a.CIDR.Masked())
			}
		}
	}
	return out
}

// HeldElsewhere are the blocks of other nodes that share an address with one of
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

func (l *Ledger) setForeign(name string, taken []netip.Prefix) (changed bool) {
	old := l.nodes.foreign[name]
	if slices.Equal(old, taken) {
		return false
	}
	for _, p := range taken {
		l.space.Reserve(p)
	}
	for _, p := range old {
		l.space.Unreserve(p)
	}
	l.taken = append(l.taken, l.missingFrom(old, taken)...)
	l.freed = append(l.freed, l.missingFrom(taken, old)...)
	if len(taken) == 0 {
		delete(l.nodes.foreign, name)
	} else {
		l.nodes.foreign[name] = taken
	}
	return true
}

// missingFrom are those of list that are not in sorted, and that no block or claim
// has anyway: a node's own blocks, which its podCIDRs name as well, change nothing.
func (l *Ledger) missingFrom(sorted, list []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if _, there := slices.BinarySearchFunc(sorted, p, netip.Prefix.Compare); !there && !l.isHeld(p) {
			out = append(out, p)
		}
	}
	return out
}

// isHeld reports whether a block or a claim has the whole of p.
func (l *Ledger) isHeld(p netip.Prefix) bool {
	if _, held := l.space.Owner(p); held {
		return true
	}
	return slices.ContainsFunc(l.space.Overlapping(p), func(h ipalloc.Held) bool { return ipalloc.Contains(h.CIDR, p) })
}
