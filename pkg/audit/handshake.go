package audit

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

const stale = "with a needless release entry"

// handshakesOf checks the release entries of a node.
func (c *check) handshakesOf(n *node) {
	for a, status := range n.view.Release {
		since, old := c.age(n.view, a)
		b := c.holder(n, a)
		if n.view.BlockAssignment != nil && !old || n.retired(b, a, status) {
			continue
		}
		f := Finding{Object: c.allocationObject(n.name), Subject: single(a), Note: c.entryNote(status, since)}
		if c.judgeEntry(n, &f, b, a, status, old) {
			c.add(f)
		}
	}
}

// judgeEntry reports whether a release entry is a finding, and completes it.
func (c *check) judgeEntry(n *node, f *Finding, b *crd.Block, a netip.Addr, status expand.ReleaseStatus, old bool) bool {
	who, used := n.inUse[a]
	switch {
	case n.view.BlockAssignment != nil:
		f.Reason, f.Note, f.Says = StaleRelease, f.Note+", which no agent of this mode reads", stale
	case n.view.publishes(a) && used && status != expand.DoNotRelease:
		f.Reason, f.Note, f.Says = MarkedInUse, who+", "+f.Note, "in use, and with a release entry"
	case !n.view.publishes(a) && (old || status != expand.Marked):
		// A mark outside the pool makes the agent report, and is gone soon after.
		f.Reason, f.Note, f.Says = StaleRelease, f.Note+", not in the pool", stale
	case !old:
		return false
	case b == nil || b.Node != n.name:
		f.Reason, f.Note, f.Says = StaleRelease, f.Note+", in no block of this node", stale
	default:
		f.Reason, f.Says = StuckHandshake, "with a release entry, and "+n.agent()+c.pausedToo(n, b)
	}
	return true
}

func (c *check) entryNote(status expand.ReleaseStatus, since time.Time) string {
	if since.IsZero() {
		return string(status)
	}
	return fmt.Sprintf("%s for %s at least", status, c.now.Sub(since).Round(time.Second))
}

// retired reports whether an address is the agent's own, which it keeps until it restarts.
func (n *node) retired(b *crd.Block, a netip.Addr, status expand.ReleaseStatus) bool {
	return n.view.BlockAssignment == nil && b != nil && b.Node == n.name && b.Phase == ipalloc.Draining &&
		status == expand.Released && expand.NamesAgent(n.inUse[a])
}

// age returns since when an entry has existed, at the latest, and whether that is long. Zero:
// unknown.
func (c *check) age(cn *CiliumNode, a netip.Addr) (since time.Time, old bool) {
	since = cn.ReleaseSince[a]
	return since, !since.IsZero() && c.now.Sub(since) >= c.StuckAfter
}

func (c *check) pausedToo(n *node, b *crd.Block) string {
	if c.isPaused(n, b) {
		return "; the operator, the node or its pool is paused"
	}
	return ""
}
