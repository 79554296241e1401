package audit

import (
	"fmt"
	"net/netip"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// handshakes checks the release entries of a node.
func (n *nodeCheck) handshakes() {
	for a, status := range n.view.Release {
		since := n.view.ReleaseSince[a] // at the latest; zero: unknown
		old := !since.IsZero() && n.isOld(since)
		b := n.holder(n.node, a)
		if n.view.BlockAssignment != nil && !old || n.retired(b, a, status) {
			continue
		}
		note := string(status)
		if !since.IsZero() {
			note = fmt.Sprintf("%s for %s at least", status, n.ago(since))
		}
		n.releaseEntry(a, note, b, status, old)
	}
}

// releaseEntry checks one entry, for an address of block b if that is not nil.
func (n *nodeCheck) releaseEntry(a netip.Addr, note string, b *crd.Block, status expand.ReleaseStatus, old bool) {
	const stale = "with a needless release entry"
	who, used := n.inUse[a]
	publishes := n.view.publishes(a)
	switch {
	case n.view.BlockAssignment != nil:
		n.add(StaleRelease, n.at(single(a), note+", which no agent of this mode reads"), stale)
	case publishes && used && status != expand.DoNotRelease:
		n.add(MarkedInUse, n.at(single(a), who+", "+note), "in use, and with a release entry")
	case !publishes && (old || status != expand.Marked):
		// A mark outside the pool makes the agent report, and is gone soon after.
		n.add(StaleRelease, n.at(single(a), note+", not in the pool"), stale)
	case !old:
	case b == nil || b.Node != n.name:
		n.add(StaleRelease, n.at(single(a), note+", in no block of this node"), stale)
	default:
		paused := ""
		if n.isPaused(b) {
			paused = "; the operator, the node or its pool is paused"
		}
		n.add(StuckHandshake, n.at(single(a), note), "with a release entry, and %s%s", n.agent(), paused)
	}
}

// retired reports whether an address is the agent's own, which it keeps until it restarts.
func (n *node) retired(b *crd.Block, a netip.Addr, status expand.ReleaseStatus) bool {
	return n.view.BlockAssignment == nil && b != nil && b.Node == n.name && b.Phase == ipalloc.Draining &&
		status == expand.Released && expand.NamesAgent(n.inUse[a])
}
