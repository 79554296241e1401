package state

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// NotRunning returns the nodes with a block of a pool whose agents do not run a family, sorted.
// It walks the blocks of the pool only if there is such an agent in the cluster.
func (l *Ledger) NotRunning(f ipalloc.Family, pool string) []string {
	l.mu.Lock()
	there := l.ciliumNodes.notRunning[f] > 0
	l.mu.Unlock()
	if !there {
		return nil
	}
	var nodes, out []string
	for b := range l.PoolBlocks(pool) {
		nodes = append(nodes, b.Node)
	}
	inParts(&l.mu, nodes, func(node string) {
		if l.ciliumNodes.lacks(node, f) {
			out = append(out, node)
		}
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// ciliumNodes is what the ledger remembers of CiliumNodes.
type ciliumNodes struct {
	// foreign are the prefixes taken because a CiliumNode names them: its podCIDRs, what
	// multi-pool mode has allocated, and, outside of these and its blocks, the addresses in
	// its pool, reported in use or the agent's own, including stale ones.
	foreign map[string][]netip.Prefix
	// seen are CiliumNodes in the latest version known, delivered by the watch or returned
	// by a write of this process. foreign derives from it. gone marks those that are
	// deleted.
	seen map[string]*ciliumnode.Stored
	gone map[string]bool
	// notRunning is how many of seen are not deleted and have an agent that does not run a
	// family.
	notRunning [2]int
	// fenced are the blocks cooling down, by UID, whose CiliumNode this process has changed
	// since, so that an older patch of it conflicts. The value is the block's version at
	// that time, because a block that has returned to service may be published again.
	fenced map[types.UID]string
	// restored are the CiliumNodes that this process restored and whose agents had reported
	// their usage: such an agent runs in our mode, even if the new CiliumNode does not show
	// that yet.
	restored map[string]types.UID
}

func newCiliumNodes() ciliumNodes {
	return ciliumNodes{
		foreign:  map[string][]netip.Prefix{},
		seen:     map[string]*ciliumnode.Stored{},
		gone:     map[string]bool{},
		restored: map[string]types.UID{},
		fenced:   map[types.UID]string{},
	}
}

// set stores the latest version of a CiliumNode, or the last one of a deleted CiliumNode.
func (c *ciliumNodes) set(cn *ciliumnode.Stored, gone bool) {
	c.count(cn.Name, -1)
	c.seen[cn.Name] = cn
	if gone {
		c.gone[cn.Name] = true
	} else {
		delete(c.gone, cn.Name)
	}
	c.count(cn.Name, 1)
}

func (c *ciliumNodes) forget(name string) {
	c.count(name, -1)
	delete(c.seen, name)
	delete(c.gone, name)
}

// count keeps notRunning, before a CiliumNode changes and after.
func (c *ciliumNodes) count(name string, by int) {
	for _, f := range ipalloc.Families() {
		if c.lacks(name, f) {
			c.notRunning[f] += by
		}
	}
}

// lacks reports whether there is a CiliumNode whose agent does not run a family.
func (c *ciliumNodes) lacks(name string, f ipalloc.Family) bool {
	cn := c.current(name)
	return cn != nil && cn.FamiliesNotRun()[f]
}

// current returns the latest version of a CiliumNode, or nil if it is deleted or unknown.
func (c *ciliumNodes) current(name string) *ciliumnode.Stored {
	if c.gone[name] {
		return nil
	}
	return c.seen[name]
}

// UpsertCiliumNode stores a CiliumNode that the watch has delivered or that a write has
// returned, unless a later version is known, as either may be late. It reports whether the
// addresses taken because of it have changed.
func (l *Ledger) UpsertCiliumNode(cn *ciliumnode.Stored) (changed bool) {
	l.mu.Lock()
	defer l.unlock()
	if l.knowsLater(cn) {
		return false
	}
	was := l.ciliumNodes.seen[cn.Name]
	l.ciliumNodes.set(cn, false)
	if was != nil && was.FamiliesNotRun() != cn.FamiliesNotRun() { // pools report this
		for _, held := range l.byNode[cn.Name] {
			l.taken = append(l.taken, held.CIDR)
		}
	}
	return l.setForeign(cn.Name, l.foreignOf(cn.Name))
}

// RemoveCiliumNode handles the deletion of a CiliumNode at its resourceVersion. What it
// named stays taken until it is back or ForgetCiliumNode is called.
func (l *Ledger) RemoveCiliumNode(cn *ciliumnode.Stored) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.knowsLater(cn) {
		return
	}
	l.ciliumNodes.set(cn, true)
}

// knowsLater reports whether a later version of a CiliumNode, or its deletion, is known.
func (l *Ledger) knowsLater(cn *ciliumnode.Stored) bool {
	seen := l.ciliumNodes.seen[cn.Name]
	return seen != nil && !reached(cn.ResourceVersion, seen.ResourceVersion)
}

// CiliumNodes returns the names of all CiliumNodes, including deleted ones that are not
// forgotten.
func (l *Ledger) CiliumNodes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.ciliumNodes.seen))
}

// MissingCiliumNodes returns the known CiliumNodes that a list shows to be deleted: those
// older than the list's version whose UID is not among listed. The result carries the
// list's resourceVersion.
func (l *Ledger) MissingCiliumNodes(listed map[types.UID]bool, version string) []*ciliumnode.Stored {
	var out []*ciliumnode.Stored
	inParts(&l.mu, l.CiliumNodes(), func(name string) {
		cn := l.ciliumNodes.current(name)
		if cn != nil && !listed[cn.UID] && reached(version, cn.ResourceVersion) {
			out = append(out, cn.At(version))
		}
	})
	return out
}

// CiliumNode returns a CiliumNode in the latest version known, or nil.
func (l *Ledger) CiliumNode(name string) *ciliumnode.View {
	l.mu.Lock()
	seen := l.ciliumNodes.current(name)
	l.mu.Unlock()
	if seen == nil {
		return nil
	}
	return seen.View()
}

// CiliumNodeAt returns the stored form of obj if exactly this version is the latest known, and
// otherwise nil. Each version that this process writes arrives twice, in the response to the write
// and from the watch, in either order: the second one need not be stored again.
func (l *Ledger) CiliumNodeAt(obj metav1.Object) *ciliumnode.Stored {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, version := l.ciliumNodes.current(obj.GetName()), obj.GetResourceVersion()
	if seen == nil || version == "" || seen.ResourceVersion != version || seen.UID != obj.GetUID() {
		return nil
	}
	return seen
}

// LastCiliumNode returns the last known state of a deleted CiliumNode, or nil.
func (l *Ledger) LastCiliumNode(name string) *ciliumnode.Stored {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ciliumNodes.gone[name] {
		return nil
	}
	return l.ciliumNodes.seen[name]
}

// MarkRestored records that a CiliumNode was restored whose agent had reported.
func (l *Ledger) MarkRestored(name string, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ciliumNodes.restored[name] = uid
}

// Restored reports whether MarkRestored was called for this CiliumNode.
func (l *Ledger) Restored(v *ciliumnode.View) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid, restored := l.ciliumNodes.restored[v.Name]
	return restored && uid == v.UID
}

// ForgetCiliumNode removes a CiliumNode that will not come back. It reports whether
// something it named is no longer taken. It keeps a CiliumNode that the watch has delivered
// since the caller's read.
func (l *Ledger) ForgetCiliumNode(name string) (changed bool) {
	l.mu.Lock()
	defer l.unlock()
	if l.ciliumNodes.current(name) != nil {
		return false
	}
	l.ciliumNodes.forget(name)
	for _, cidr := range slices.Clone(l.closedFor[name]) {
		l.setClosed(cidr, crd.Block{})
	}
	delete(l.ciliumNodes.restored, name)
	return l.setForeign(name, nil)
}

// MarkFenced records that the CiliumNode of a block has changed since the block was
// seen cooling down.
func (l *Ledger) MarkFenced(b crd.Block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held, ok := l.blocks[b.CIDR]; ok && held.UID == b.UID {
		l.ciliumNodes.fenced[b.UID] = b.ResourceVersion
	}
}

// Fenced reports whether MarkFenced was called for the block in its current version.
func (l *Ledger) Fenced(b crd.Block) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	version, noted := l.ciliumNodes.fenced[b.UID]
	return noted && version == b.ResourceVersion
}

// maxNodeBits are the host bits of the largest CIDR that can be the range of one node: /16 and
// /64, by far more than a kubelet can run pods.
var maxNodeBits = [2]int{ipalloc.IPv4: 16, ipalloc.IPv6: 64}

// withholds reports whether a CIDR that a CiliumNode lists is taken as a whole. Otherwise only
// the addresses that the CiliumNode names are taken, so that one wrong entry cannot take
// every pool from all nodes:
//
//	more addresses than maxNodeBits        no
//	more addresses than a block can have   unless the agent runs in crd mode, where it allocates
//	                                       from its pool alone, or another node has a block there
//	otherwise                              unless both
//
// A block inside such a CIDR has a more specific route.
func (l *Ledger) withholds(cn *ciliumnode.Stored, cidr netip.Prefix) bool {
	hostBits := cidr.Addr().BitLen() - cidr.Bits()
	wide := hostBits > ipalloc.MaxHostBits
	if hostBits > maxNodeBits[ipalloc.FamilyOf(cidr.Addr())] || wide && cn.ReportsUse() {
		return false
	}
	if !wide && !cn.ReportsUse() {
		return true
	}
	return !slices.ContainsFunc(l.space.Overlapping(cidr), func(h ipalloc.Held) bool {
		return h.Owner.Node != cn.Name && ipalloc.Contains(cidr, h.CIDR)
	})
}

func (l *Ledger) foreignOf(node string) []netip.Prefix {
	cn := l.ciliumNodes.seen[node]
	if cn == nil {
		return nil
	}
	taken := slices.DeleteFunc(cn.AssignedCIDRs(), func(p netip.Prefix) bool { return !l.withholds(cn, p) })
	covers := slices.Clone(taken)
	for _, held := range l.byNode[node] {
		covers = append(covers, held.CIDR)
	}
	for addr := range cn.Addresses() {
		if !ContainsAddr(covers, addr) {
			taken = append(taken, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	if cn.BlockDemand != nil {
		for _, p := range cn.BlockDemand.Taken {
			if l.withholds(cn, p) {
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
	names := slices.Collect(maps.Keys(l.ciliumNodes.foreign))
	l.mu.Unlock()
	var out []Withholder
	inParts(&l.mu, names, func(name string) {
		if n := l.withheldBy(name, cut); n > 0 {
			out = append(out, Withholder{name, n})
		}
	})
	slices.SortFunc(out, func(a, b Withholder) int {
		return cmp.Or(cmp.Compare(b.Blocks, a.Blocks), cmp.Compare(a.CiliumNode, b.CiliumNode))
	})
	return out
}

// withheldBy counts the blocks of cut that a CiliumNode withholds.
func (l *Ledger) withheldBy(name string, cut ipalloc.Cut) (n uint64) {
	counted := map[netip.Prefix]bool{}
	for _, p := range l.ciliumNodes.foreign[name] {
		for _, within := range cut.Ranges {
			if !within.Overlaps(p) || l.isHeld(p) {
				continue
			}
			if p.Bits() < within.Bits() {
				p = within
			}
			if p.Bits() < cut.BlockBits {
				total := ipalloc.Cut{Ranges: []netip.Prefix{p}, BlockBits: cut.BlockBits}.Total()
				n += total - min(total, uint64(len(l.space.Overlapping(p))))
				continue
			}
			block := netip.PrefixFrom(p.Addr(), cut.BlockBits).Masked()
			if !counted[block] && !l.isHeld(block) {
				counted[block], n = true, n+1
			}
		}
	}
	return n
}

// NamedElsewhere returns what other nodes' CiliumNodes name of cidr, outside their own
// blocks. It walks all of them if another one names a part of cidr, which is rare.
// Concurrent changes may or may not be included.
func (l *Ledger) NamedElsewhere(node string, cidr netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	inParts(&l.mu, l.mayName(node, cidr), func(name string) {
		for _, p := range l.ciliumNodes.foreign[name] {
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
	own := 0
	for _, p := range l.ciliumNodes.foreign[node] {
		if p.Overlaps(cidr) {
			own++
		}
	}
	if l.space.Reservations(cidr)-l.withheld.Reservations(cidr) == own {
		return nil
	}
	names := make([]string, 0, len(l.ciliumNodes.foreign))
	for name := range l.ciliumNodes.foreign {
		if name != node {
			names = append(names, name)
		}
	}
	return names
}

// ListedFor returns the CIDRs that CiliumNodes list for a Cilium pool, including
// deleted ones that may be restored. It walks them all.
func (l *Ledger) ListedFor(ciliumPool string) []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []netip.Prefix
	for _, cn := range l.ciliumNodes.seen {
		for _, a := range cn.Allocated {
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

func (l *Ledger) setForeign(name string, taken []netip.Prefix) (changed bool) {
	old := l.ciliumNodes.foreign[name]
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
		delete(l.ciliumNodes.foreign, name)
	} else {
		l.ciliumNodes.foreign[name] = taken
	}
	return true
}

// missingFrom returns the prefixes of list that are not in sorted and that no block or
// claim covers. A node's own blocks, which its podCIDRs name as well, make no difference.
func (l *Ledger) missingFrom(sorted, list []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if _, there := slices.BinarySearchFunc(sorted, p, netip.Prefix.Compare); !there && !l.isHeld(p) {
			out = append(out, p)
		}
	}
	return out
}

// isHeld reports whether a block or a claim covers all of p.
func (l *Ledger) isHeld(p netip.Prefix) bool {
	if _, held := l.space.Owner(p); held {
		return true
	}
	return slices.ContainsFunc(l.space.Overlapping(p), func(h ipalloc.Held) bool { return ipalloc.Contains(h.CIDR, p) })
}
