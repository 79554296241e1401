package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// modeWait is when to look again whether agents are configured for the operator's mode.
const modeWait = time.Minute

// otherMode returns the IPAM mode that the agent of a node starts in next, if it would not find the
// node's blocks there; "": it would. A node that moves from or to another mode is listed for both,
// was adopted from that mode, or is paused meanwhile.
func (c *Cluster) otherMode(node *corev1.Node, blocks []crd.Block, view *ciliumnode.View) string {
	if c.AnyMode || node == nil {
		return ""
	}
	next := c.Cilium.Get().Mode(node.Labels)
	if next == "" || next == c.Mode.String() || c.OptedOut(node) || node.Annotations[v1alpha1.PausedAnnotation] == "true" {
		return ""
	}
	switch listed := view.CIDRsIn(ciliumnode.Mode(next)); {
	case len(blocks) == 0, len(ipalloc.Uncovered(crd.CIDRs(blocks), listed)) == 0:
		return ""
	case slices.ContainsFunc(blocks, func(b crd.Block) bool { return b.AdoptedFrom == next }):
		return ""
	}
	return next
}

// OtherMode are the nodes with agents that start next in a mode without their blocks.
type OtherMode struct {
	Mode  string
	Nodes []string // sorted
}

// OtherModes groups nodes by the other mode that their agents start in next, sorted, and counts them.
func (c *Cluster) OtherModes(nodes []corev1.Node) (others []OtherMode, n int) {
	byMode := map[string][]string{}
	for i := range nodes {
		name := nodes[i].Name
		if mode := c.otherMode(&nodes[i], c.Ledger.NodeBlocks(name), c.Ledger.CiliumNode(name)); mode != "" {
			byMode[mode] = append(byMode[mode], name)
			n++
		}
	}
	for _, mode := range slices.Sorted(maps.Keys(byMode)) {
		slices.Sort(byMode[mode])
		others = append(others, OtherMode{mode, byMode[mode]})
	}
	return others, n
}

// Says describes the consequences for the nodes, for users.
func (o OtherMode) Says(operator ciliumnode.Mode) string {
	const most = 5
	names := strings.Join(o.Nodes[:min(len(o.Nodes), most)], ", ")
	if more := len(o.Nodes) - most; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("agents of %s start next in ipam mode %s, and the operator assigns blocks in mode %s: their pods would lose their network", names, o.Mode, operator)
}

// modeHold delays reclaims and drains of a node with an agent that starts next in another mode.
func modeHold(now time.Time) expand.Hold {
	return expand.Hold{For: expand.WaitMode, Until: now.Add(modeWait)}
}
