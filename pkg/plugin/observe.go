package plugin

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
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

// observe is the state of a family of a node, as pkg/controller's observe.go
// has it of its caches. It reports false where there is none.
func (c *cluster) observe(name string, f ipalloc.Family) (decision, bool) {
	node, view := c.nodes[name], c.views[name]
	d := decision{family: f, policy: c.defaults.Policy}
	if node != nil && node.Labels[v1alpha1.OptOutLabel] != "true" {
		for _, pool := range c.pools.Match(labels.Set(node.Labels)) {
			if _, serves := pool.Ranges(f); serves {
				d.pools = append(d.pools, pool)
			}
		}
	}
	settled, _ := c.agents.Settled(name, c.now)
	d.state = expand.State{Node: name, Family: f, AgentSettled: settled, Gone: node == nil && view == nil}
	for _, b := range c.ledger.NodeBlocks(name) {
		if familyOf(b) == f {
			d.state.Blocks = append(d.state.Blocks, c.blockState(b, view))
		}
	}
	if len(d.pools) > 0 {
		d.policy = d.pools[0].Policy
	} else if d.policy.ReclaimDisabled = true; len(d.state.Blocks) == 0 {
		return d, false
	}
	d.paused = pausedBecause(node, d.pools)
	if view != nil {
		d.state.Pool, d.state.Used, d.state.Release = view.Pool, view.Used, view.Release
		d.state.Own, d.state.Limits = view.InUse(), view.Limits
	}
	d.state.Pods = c.pods[name]
	return d, true
}

func (c *cluster) blockState(b crd.Block, view *ciliumnode.View) expand.Block {
	s := expand.Block{CIDR: b.CIDR, Phase: b.Phase, Reason: b.Reason, Listed: view != nil && view.Lists(b.CIDR)}
	pool := c.pools.Get(b.Pool)
	switch {
	case pool != nil && !pool.Frozen():
		s.Usable = pool.Usable(b.CIDR)
	case view != nil:
		s.Usable = publishedIn(view, b.CIDR)
	}
	switch {
	case b.Deleting:
		s.Request = expand.Deleted
	case pool == nil, pool.Deleting:
		s.Request = expand.PoolDeleted
	case pool.Drains(b.CIDR):
		s.Request = expand.CIDRDraining
	}
	if len(c.ledger.Overlaps(b.CIDR)) > 0 {
		s.Conflict, s.Usable = !s.Listed, nil
		if s.Listed {
			s.Usable = publishedIn(view, b.CIDR)
		}
	}
	if b.Phase == ipalloc.CoolingDown {
		s.RestUntil = b.Since.Add(c.cooldown(b, pool))
	}
	return s
}

func (c *cluster) cooldown(b crd.Block, pool *crd.Pool) time.Duration {
	switch {
	case pool == nil && b.Reason == expand.NodeGone:
		return c.defaults.NodeGoneCooldown
	case pool == nil:
		return c.defaults.Cooldown
	case b.Reason == expand.NodeGone:
		return pool.NodeGoneCooldown
	}
	return pool.Cooldown
}

func pausedBecause(node *corev1.Node, pools []*crd.Pool) string {
	switch {
	case node != nil && node.Annotations[v1alpha1.PausedAnnotation] == "true":
		return "the Node is paused (annotation " + v1alpha1.PausedAnnotation + ")"
	case len(pools) > 0 && pools[0].Paused:
		return "pool " + pools[0].Name + " is paused or invalid"
	}
	return ""
}

func publishedIn(view *ciliumnode.View, cidr netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for a := range view.Pool {
		if cidr.Contains(a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
