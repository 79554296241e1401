package plugin

import (
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// decision is what the operator would decide for one family of a node on this
// snapshot, if it remembered nothing.
type decision struct {
	family ipalloc.Family
	pools  []*crd.Pool // that serve the node, best first; the first rules
	policy expand.Policy
	paused string // why nothing may change; "": it may
	state  expand.State
	plan   expand.Plan
	memory expand.Memory
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
		d, any := c.observe(name, f)
		if !any {
			continue
		}
		d.plannedAt = c.now
		d.plan, d.memory = expand.Decide(c.now, d.policy, d.state, expand.Memory{})
		out = append(out, d)
	}
	return out
}

// observe is what one family of a node is decided on. It reports false where the
// node has nothing to do with the family.
func (c *cluster) observe(name string, f ipalloc.Family) (decision, bool) {
	node, view := c.nodes[name], c.views[name]
	settled, _ := c.agents.Settled(name, c.now)
	o := controller.Observer{Ledger: c.ledger, Pools: c.pools, Defaults: c.defaults}
	d := decision{family: f, state: expand.State{
		Node: name, Family: f, Pods: c.pods[name], AgentSettled: settled, Gone: node == nil && view == nil,
	}}
	d.pools, d.policy, d.paused = o.Policy(node, f)
	if d.paused == "" && c.elsewhere(name) {
		d.paused = "another IPAM gives addresses to its pods: kubectl cilium-pool migrate plan"
	}
	d.state = o.State(d.state, view, c.ledger.NodeBlocks(name))
	return d, len(d.pools)+len(d.state.Blocks) > 0
}

// elsewhere reports whether another IPAM serves the pods of a node.
func (c *cluster) elsewhere(name string) bool {
	view := c.views[name]
	return view != nil && len(view.Unadopted(prefixesOf(c.ledger.NodeBlocks(name)))) > 0
}
