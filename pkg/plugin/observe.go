package plugin

import (
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// decision is what the operator would decide for one family of a node on this
// snapshot, if it remembered nothing.
type decision struct {
	state.Share
	plan   expand.Plan
	memory expand.Memory
	// plannedAt is the instant that the plan is of.
	plannedAt time.Time
}

// decide collects the state of a node and asks expand.Decide. Families the
// node has nothing to do with are left out.
func (c *cluster) decide(name string) []decision {
	o := c.observer()
	snapshot := o.Snapshot(name, c.nodes[name], c.now)
	var out []decision
	for _, share := range snapshot.Shares {
		s := &share.State
		s.Gone = snapshot.Node == nil && snapshot.CiliumNode == nil
		c.holdAsReported(s)
		d := decision{Share: share, plannedAt: c.now}
		d.plan, d.memory = expand.Decide(c.now, d.Policy, d.State, expand.Memory{})
		out = append(out, d)
	}
	return out
}

func (c *cluster) observer() state.Cluster {
	return state.Cluster{
		Ledger: c.ledger, Pools: c.pools, Pods: c.pods, Agents: c.agents, CiliumPools: c.ciliumPools, Taken: c.taken, Defaults: c.settings.Defaults, Paused: c.settings.Paused,
		IgnoreTaints: state.SetOf(c.settings.IgnoreTaints), StartupTaints: state.SetOf(c.settings.StartupTaints),
	}
}

// taken is how many percent of a pool's blocks are taken.
func (c *cluster) taken(name string, f ipalloc.Family) int {
	pool := c.pools.Get(name)
	if pool == nil {
		return 0
	}
	cut, ok := pool.Cut(f)
	if !ok {
		return 0
	}
	return state.TakenPercent(pool, f, c.ledger.Free(cut))
}

// holdAsReported holds the blocks of which the operator says on their objects that it
// does: it knows of windows by its flags, and of turns.
func (c *cluster) holdAsReported(s *expand.State) {
	for i := range s.Blocks {
		b := &s.Blocks[i]
		asked := b.Request == expand.CIDRDraining || b.Request == expand.PoolDeleted
		if is, ok := c.ledger.Block(b.CIDR); ok && is.Held != "" && asked && b.Hold.For == "" && !c.supposed {
			b.Hold.For = expand.WaitTurn
		}
	}
}

// elsewhere reports whether another IPAM serves the pods of a node.
func (c *cluster) elsewhere(name string) bool {
	view := c.views[name]
	return view != nil && len(view.Unadopted(crd.CIDRs(c.ledger.NodeBlocks(name)))) > 0
}
