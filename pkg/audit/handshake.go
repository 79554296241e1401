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
		f := Finding{Object: c.allocationObject(n.name), Subject: single(a)}
		f.Note = string(status)
		age, old := c.age(n.view, a)
		if !age.IsZero() {
			f.Note += fmt.Sprintf(" for %s at least", c.now.Sub(age).Round(time.Second))
		}
		who, used := n.inUse[a]
		b := c.holder(n, a)
		mine := b != nil && b.Node == n.name
		switch {
		case n.view.BlockDemand != nil:
			if !old {
				continue
			}
			f.Reason, f.Note, f.Says = StaleRelease, f.Note+", which no agent of this mode reads", stale
		case mine && b.Phase == ipalloc.Draining && status == expand.Released && expand.NamesAgent(who):
			continue // the agent keeps its own until it restarts
		case n.view.publishes(a) && used && status != expand.DoNotRelease:
			f.Reason, f.Note, f.Says = MarkedInUse, who+", "+f.Note, "in use, and with a release entry"
		case !n.view.publishes(a) && (old || status != expand.Marked):
			// A mark outside the pool makes the agent report; it is gone soon.
			f.Reason, f.Note, f.Says = StaleRelease, f.Note+", not in the pool", stale
		case !old:
			continue
		case !mine:
			f.Reason, f.Note, f.Says = StaleRelease, f.Note+", in no block of this node", stale
		default:
			f.Reason, f.Says = StuckHandshake, "with a release entry, and "+n.agent()+c.pausedToo(n, b)
		}
		c.add(f)
	}
}

// age is since when an entry has stood, at the latest, and whether that is long.
// Zero: it is not known.
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
