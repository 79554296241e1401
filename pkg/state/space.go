package state

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// core is shared by all parts of a ledger: its lock, and the addresses that are taken.
type core struct {
	mu    sync.Mutex
	space *ipalloc.Space

	// Changed, if set, receives the freed CIDRs, and those taken in other ways than by a
	// claim, after the ledger has recorded them. It may call the ledger.
	Changed      func(freed, taken []netip.Prefix)
	freed, taken []netip.Prefix // since the last call of Changed
}

// unlock ends a change of the ledger. Only unlock reports freed CIDRs, so that no waiting
// node is missed.
func (c *core) unlock() {
	freed, taken := c.freed, c.taken
	c.freed, c.taken = nil, nil
	c.mu.Unlock()
	if c.Changed != nil && len(freed)+len(taken) > 0 {
		c.Changed(freed, taken)
	}
}

// Free returns the number of blocks that can currently be claimed from cut.
func (c *core) Free(cut ipalloc.Cut) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.space.Free(cut)
}

// Overlaps returns the blocks that share addresses with cidr, except cidr itself.
func (c *core) Overlaps(cidr netip.Prefix) []ipalloc.Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.space.Overlapping(cidr)
}

// HeldIn returns the blocks that share addresses with cidr, including cidr itself.
func (c *core) HeldIn(cidr netip.Prefix) []ipalloc.Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.space.Overlapping(cidr)
	if owner, ok := c.space.Owner(cidr); ok {
		held = append(held, ipalloc.Held{CIDR: cidr, Owner: owner})
	}
	return held
}

// HolderOf returns a block that overlaps an excluded prefix, and its node, or "" if there
// is none.
func (c *core) HolderOf(r exclude.Range) string {
	held := c.HeldIn(r.CIDR)
	if len(held) == 0 {
		return ""
	}
	return fmt.Sprintf("in block %s of node %s", held[0].CIDR, held[0].Owner.Node)
}

// missingFrom returns the prefixes of list that are not in sorted and that no block or
// claim covers. A node's own blocks, which its podCIDRs name as well, make no difference.
func (c *core) missingFrom(sorted, list []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if _, there := slices.BinarySearchFunc(sorted, p, netip.Prefix.Compare); !there && !c.isHeld(p) {
			out = append(out, p)
		}
	}
	return out
}

// isHeld reports whether a block or a claim covers all of p.
func (c *core) isHeld(p netip.Prefix) bool {
	if _, held := c.space.Owner(p); held {
		return true
	}
	return slices.ContainsFunc(c.space.Overlapping(p), func(h ipalloc.Held) bool { return ipalloc.Contains(h.CIDR, p) })
}
