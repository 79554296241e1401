package scheduling

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// donor is a node that can return blocks of some pools at once.
type donor struct {
	node       *corev1.Node
	cordoned   bool
	releasable []netip.Prefix
}

// recall adds to the needs of nodes the blocks that they should return at once because pods, or
// nodes without any block, wait for blocks of full pools: as many as are missing, less the blocks
// already being returned, and less the blocks that have moved since the turnover at the start of
// the assignment, which may have missed them: of these, it looks again soon. Cordoned nodes come
// first, then the nodes that can spare the most. No node returns its only block, so a node keeps a
// first block that it has just got.
func (c *Offering) recall(a *Assignment, nodes []corev1.Node, turnover map[string]uint64, now time.Time) {
	for _, f := range ipalloc.Families() {
		a.Scarce[f] = map[string]bool{}
		releasable := map[string][]netip.Prefix{} // of the nodes asked so far: each costs a Snapshot
		returning := map[string]int{}
		moved := map[string]int{}
		for _, w := range missingBlocks(a, f) {
			for _, pool := range w.pools {
				a.Scarce[f][pool] = true
			}
			unreturned := countOn(returning, w.pools, w.blocks, func(pool string) int { return len(c.Returning(pool, f, now)) })
			lack := countOn(moved, w.pools, unreturned, func(pool string) int { return c.moved(pool, turnover) })
			if lack < unreturned {
				a.sooner(now.Add(recallDelay))
			}
			if lack == 0 {
				continue
			}
			for _, g := range c.donors(w.pools, f, a, nodes, releasable, now) {
				for _, cidr := range g.releasable[:min(lack, len(g.releasable))] {
					key := NodeCiliumPool{Node: g.node.Name}
					needs := a.Needs[key]
					needs.Recall = append(needs.Recall, cidr)
					a.Needs[key] = needs
					lack--
				}
			}
		}
	}
}

// countOn returns what is left of a lack that counts on blocks of pools. No two lacks count on the same one: left has
// what nobody counts on yet, and count returns what a pool has.
func countOn(left map[string]int, pools []string, lack int, count func(pool string) int) int {
	for _, pool := range pools {
		if _, counted := left[pool]; !counted {
			left[pool] = count(pool)
		}
		n := min(lack, left[pool])
		left[pool] -= n
		lack -= n
	}
	return lack
}

// recallDelay is when to look again whether blocks must be recalled that were not while
// others moved.
const recallDelay = time.Second

// muchLater is how much longer than a recalled block another one may cool down and still spare the
// recall. The block of a deleted Node cools down for longer than others.
const muchLater = 15 * time.Minute

// moved counts the blocks of a pool that were claimed or freed since an earlier turnover. It must be
// read after the blocks and claims.
func (c *Offering) moved(pool string, earlier map[string]uint64) int {
	n := max(c.State.Ledger.Turnover()[pool], earlier[pool]) - earlier[pool]
	return int(min(n, math.MaxInt32))
}

// missing is the number of blocks from any of these pools that pods and nodes wait for.
type missing struct {
	pools  []string
	blocks int
}

// missingBlocks returns the lacks of the candidates, in order, and then one block for each node
// without any, with one entry for all that claim from the same pools.
func missingBlocks(a *Assignment, f ipalloc.Family) []missing {
	var out []missing
	indexes := map[string]int{}
	add := func(pools []string, n int) {
		if n == 0 || len(pools) == 0 {
			return
		}
		key := strings.Join(pools, " ")
		j, known := indexes[key]
		if !known {
			j = len(out)
			out = append(out, missing{pools: pools})
			indexes[key] = j
		}
		out[j].blocks += n
	}
	for i, n := range a.Missing {
		add(a.Candidates[i].Pools[f], n[f])
	}
	for i := range a.FirstBlocks {
		add(a.FirstBlocks[i].Pools[f], 1)
	}
	return out
}

// Returning returns the blocks of a pool that are on their way back to nodes: cooling ones, and draining
// ones without an address reported as used, of agents that run steadily.
func (c *Offering) Returning(name string, f ipalloc.Family, now time.Time) (blocks []crd.Block) {
	pool := c.State.Pools.Get(name)
	for b := range c.State.Ledger.PoolBlocks(name) {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == f && b.Phase != ipalloc.InService && c.State.Ledger.ComesBack(pool, b.CIDR) {
			blocks = append(blocks, b)
		}
	}
	return slices.DeleteFunc(blocks, func(b crd.Block) bool {
		if b.Phase == ipalloc.CoolingDown {
			return b.Since.Add(c.State.Cooldown(b)).After(now.Add(pool.Cooldown + muchLater))
		}
		settled, _ := c.State.Agents.Settled(b.Node, now)
		view := c.State.Ledger.CiliumNode(b.Node)
		return view != nil && (!settled || view.UsesAny(b.CIDR))
	})
}

// donors returns the nodes that can spare blocks of pools. It adds to releasable.
func (c *Offering) donors(pools []string, f ipalloc.Family, a *Assignment, nodes []corev1.Node, releasable map[string][]netip.Prefix, now time.Time) []donor {
	serving := map[string]int{}
	for _, pool := range pools {
		for b := range c.State.Ledger.PoolBlocks(pool) {
			if b.Phase == ipalloc.InService && ipalloc.FamilyOf(b.CIDR.Addr()) == f {
				serving[b.Node]++
			}
		}
	}
	var out []donor
	for i := range nodes {
		node := &nodes[i]
		if serving[node.Name] == 0 {
			continue
		}
		g := donor{node: node, cordoned: node.Spec.Unschedulable}
		if _, ok := releasable[node.Name]; !ok {
			releasable[node.Name] = c.releasable(node, f, a, now)
		}
		for _, cidr := range releasable[node.Name] {
			if c.helps(pools, cidr) && !slices.Contains(a.Needs[NodeCiliumPool{Node: node.Name}].Recall, cidr) {
				g.releasable = append(g.releasable, cidr)
			}
		}
		if len(g.releasable) > 0 {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b donor) int {
		if a.cordoned != b.cordoned {
			if a.cordoned {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(len(b.releasable), len(a.releasable)), strings.Compare(a.node.Name, b.node.Name))
	})
	return out
}

// helps reports whether a block that a node returns is one that nodes can claim from pools.
func (c *Offering) helps(pools []string, cidr netip.Prefix) bool {
	b, ok := c.State.Ledger.Block(cidr)
	return ok && slices.Contains(pools, b.Pool) && c.State.Ledger.ComesBack(c.State.Pools.Get(b.Pool), cidr)
}

// releasable returns the blocks of a family that a node could return at once, beside the pods it should
// have room for. If the node could return others once time has passed, it makes the pods be
// assigned again then.
func (c *Offering) releasable(node *corev1.Node, f ipalloc.Family, a *Assignment, now time.Time) []netip.Prefix {
	s := c.State.Snapshot(node.Name, node, now)
	needs := a.Needs[NodeCiliumPool{Node: node.Name}]
	i := slices.IndexFunc(s.Shares, func(share state.Share) bool { return share.Family == f })
	if i < 0 || !s.Shares[i].Standing.MayChange() || s.CiliumNode == nil {
		return nil
	}
	for _, later := range []time.Time{s.Settles, s.Shares[i].State.ReclaimDelay.Until} {
		if later.After(now) {
			a.sooner(later)
		}
	}
	s.Shares[i].State.Expected = needs.Expected[f]
	return expand.Recallable(now, s.Shares[i].Policy, s.Shares[i].State)
}
