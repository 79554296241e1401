package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
)

// share is the key that separates a node's needs.
type share struct {
	family     ipalloc.Family
	ciliumPool string // "": the default one
}

// sharesOf returns the shares of two plans, sorted.
func sharesOf(was, is map[share]nodeChange) []share {
	all := maps.Clone(was)
	maps.Copy(all, is)
	return slices.SortedFunc(maps.Keys(all), func(a, b share) int {
		return cmp.Or(cmp.Compare(a.family, b.family), strings.Compare(a.ciliumPool, b.ciliumPool))
	})
}

// firstSteps returns the first steps of a node, by family and Cilium pool, as changes from zero.
// Their claims are taken in the cluster's ledger.
func firstSteps(c *cluster.Cluster, name string) map[share]nodeChange {
	steps := map[share]nodeChange{}
	users := c.Users(name)
	for _, d := range c.Decide(name) {
		n := nodeChange{Node: name, Family: d.Family.String(), PoolAfter: d.Ruling(), Paused: d.Paused, Claims: []string{}, Leaves: []leaves{}}
		for _, b := range d.State.Blocks {
			if b.Request == expand.None || b.Phase == ipalloc.CoolingDown {
				continue
			}
			held, _ := c.Ledger.Block(b.CIDR)
			pool := c.Pools.Get(held.Pool)
			n.Leaves = append(n.Leaves, leaves{
				Block: held.Name, Used: cluster.CountIn(b.CIDR, users), Reason: string(b.Request),
				Orphaned: pool == nil || !pool.Deleting && !pool.OnGrid(b.CIDR), Until: opens(b.Hold),
			})
		}
		if d.Paused == "" && c.Nodes[name] != nil {
			n.Claims, n.Missing = claimBlocks(c, &d)
		}
		for i := range n.Leaves {
			n.Leaves[i].Stays = n.Missing > 0
		}
		steps[share{d.Family, d.CiliumPool}] = n
	}
	return steps
}

// opens returns when the window opens that a block waits for; nil: it waits for none.
func opens(h expand.Hold) *time.Time {
	if h.For != expand.WaitWindow || h.Until.IsZero() {
		return nil
	}
	at := h.Until.UTC()
	return &at
}

// claimBlocks claims blocks as the operator would: as many as the plan needs.
func claimBlocks(c *cluster.Cluster, d *cluster.Decision) (blocks []string, missing int) {
	blocks = []string{}
	want := d.Plan.Claim
	for got := 0; got < want.Addresses && len(blocks) < want.Blocks; {
		cidr, pool, err := c.Ledger.Claim(d.Family, d.State.Node, d.State.Agent, d.Pools)
		if err != nil {
			return blocks, want.Addresses - got // ipalloc.ErrExhausted: the ledger is ready
		}
		if d.State.BlockAssignment != nil {
			got += c.Ledger.CiliumNode(d.State.Node).Of(d.CiliumPool).BlockAssignment.Count(cidr)
		} else {
			got += len(pool.Usable(cidr))
		}
		blocks = append(blocks, cidr.String())
	}
	return blocks, 0
}
