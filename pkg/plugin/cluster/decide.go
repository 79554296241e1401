package cluster

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Decision is the operator's decision for one family of a node on this snapshot, without its
// memory.
type Decision struct {
	state.Share
	Plan   expand.Plan
	Memory expand.Memory
	// At is the time of the plan.
	At time.Time
	// OtherIPAM: another IPAM serves the node's pods.
	OtherIPAM bool
}

// Decide collects the state of a node and calls expand.Decide. It omits families without a meaning
// for the node.
func (c *Cluster) Decide(name string) []Decision {
	snapshot := c.Snapshot(name, c.Nodes[name], c.Now)
	var out []Decision
	for _, share := range snapshot.Shares {
		s := &share.State
		s.Gone = snapshot.Node == nil && snapshot.CiliumNode == nil
		c.holdAsReported(s)
		if w := s.BlockAssignment; w != nil && len(w.Assigned) == 0 && len(snapshot.Blocks) > 0 { // as the operator reads it
			w.Runs = c.RunsWith(name, share.Family)
		}
		d := Decision{Share: share, At: c.Now, OtherIPAM: snapshot.OtherIPAM}
		d.Plan, d.Memory = expand.Decide(c.Now, d.Policy, d.State, expand.Memory{})
		out = append(out, d)
	}
	return out
}

// RunsWith returns the podCIDRs of a family that a node's agent runs with, in kubernetes mode.
// Its Node need not name them.
func (c *Cluster) RunsWith(node string, f ipalloc.Family) []netip.Prefix {
	i := slices.IndexFunc(c.Objects.CiliumNodes, func(cn audit.CiliumNode) bool { return cn.Name == node })
	if i < 0 || c.Objects.CiliumNodes[i].BlockAssignment == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.Objects.CiliumNodes[i].BlockAssignment.Runs), func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) != f })
}

// holdAsReported holds the blocks that the operator reports as held in their statuses: it knows
// windows set by its flags, and turns.
func (c *Cluster) holdAsReported(s *expand.State) {
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if is, ok := c.Ledger.Block(b.CIDR); ok && is.WaitsFor.IsHold() && state.MayWait(b) && b.Hold.For == "" && !c.Hypothetical {
			b.Hold.For = is.WaitsFor
		}
	}
}
