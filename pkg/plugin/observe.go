package plugin

import (
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// decision is what the operator would decide for one family of a node on this
// snapshot, if it remembered nothing.
type decision struct {
	family ipalloc.Family
	// ciliumPool is the pool of Cilium's it is about; "": the default one.
	ciliumPool string
	pools      []*crd.Pool // that serve the node, best first; the first rules
	policy     expand.Policy
	paused     string // why nothing may change; "": it may
	state      expand.State
	plan       expand.Plan
	memory     expand.Memory
	// plannedAt is the instant that the plan is of.
	plannedAt time.Time
}

func (d *decision) ruling() string {
	if len(d.pools) == 0 {
		return ""
	}
	return d.pools[0].Name
}

// decide gathers what is known of a node and asks expand.Decide. Families the
// node has nothing to do with are left out.
func (c *cluster) decide(name string) []decision {
	var out []decision
	for _, f := range ipalloc.Families() {
		o := c.observer()
		for _, ciliumPool := range o.CiliumPoolsOf(c.nodes[name], f, c.views[name], c.ledger.NodeBlocks(name)) {
			d, any := c.observe(name, f, ciliumPool)
			if !any {
				continue
			}
			d.plannedAt = c.now
			d.plan, d.memory = expand.Decide(c.now, d.policy, d.state, expand.Memory{})
			out = append(out, d)
		}
	}
	return out
}

func (c *cluster) observer() state.Cluster {
	return state.Cluster{
		Ledger: c.ledger, Pools: c.pools, Defaults: c.settings.Defaults, Paused: c.settings.Paused,
		IgnoreTaints: setOf(c.settings.IgnoreTaints), StartupTaints: setOf(c.settings.StartupTaints),
	}
}

func setOf(keys []string) map[string]bool {
	set := map[string]bool{}
	for _, key := range keys {
		set[key] = true
	}
	return set
}

// observe is what one family of a node is decided on, for one pool of Cilium's. It
// reports false where the node has nothing to do with it.
func (c *cluster) observe(name string, f ipalloc.Family, ciliumPool string) (decision, bool) {
	node, view := c.nodes[name], c.views[name]
	settled, _ := c.agents.Settled(name, c.now)
	o := c.observer()
	d := decision{family: f, ciliumPool: ciliumPool, state: expand.State{
		Node: name, Family: f, Pods: o.PodsFor(c.pods[name], c.asked, f, ciliumPool, view), MaxPods: state.MaxPods(node),
		AgentSettled: settled, Gone: node == nil && view == nil,
	}}
	d.pools, d.policy, d.paused = o.Policy(node, f, ciliumPool)
	if d.paused == "" && c.elsewhere(name) {
		d.paused = controller.OtherIPAM
	}
	blocks := c.ledger.NodeBlocks(name)
	if d.paused == "" {
		d.paused = o.AwaitsLabels(node, view, len(blocks))
	}
	d.state = o.State(d.state, ciliumPool, view, blocks)
	state.ApplyPressure(&d.state, node, blocks, func(pool string) int { return c.taken(c.pools.Get(pool), f) })
	o.ApplyWindows(&d.state, d.pools, c.now)
	c.holdAsTold(&d.state)
	return d, len(d.pools)+len(d.state.Blocks) > 0
}

// taken is how many percent of a pool's blocks are taken.
func (c *cluster) taken(pool *crd.Pool, f ipalloc.Family) int {
	if pool == nil {
		return 0
	}
	cut, ok := pool.Cut(f)
	if !ok {
		return 0
	}
	return state.TakenPercent(pool, f, c.ledger.Free(cut))
}

// holdAsTold holds the blocks of which the operator says on their objects that it
// does: it knows of windows by its flags, and of turns.
func (c *cluster) holdAsTold(s *expand.State) {
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
