package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// effect is the effect of an edit of pools.
type effect struct {
	Pools []poolChange `json:"pools"`
	Nodes []nodeChange `json:"nodes"`
	// Unserved are nodes that a pool serves now and none would.
	Unserved []string `json:"unserved"`
	// RoutesAdded and RoutesRemoved count the podCIDRs that are added and removed.
	RoutesAdded   int `json:"routesAdded"`
	RoutesRemoved int `json:"routesRemoved"`
	// Covered are the addresses of nodes and Services that a pool would cover, by
	// pool: no pod would get them, except shared ones.
	Covered []covered `json:"covered,omitempty"`
	// Closed are the CIDRs of pools that an older pool would close.
	Closed []closed `json:"closed,omitempty"`
	// Public are the added ranges that are neither private nor shared address space.
	Public []public `json:"public,omitempty"`
	// Masqueraded are the ranges of pools that Cilium masquerades.
	Masqueraded []masqueraded `json:"masqueraded,omitempty"`
	// InUse counts the addresses in use in blocks that would need to leave.
	InUse int `json:"inUse"`
}

// covered is the part of the addresses of nodes and Services that a pool would cover.
type covered struct {
	Pool  string `json:"pool"`
	Count int    `json:"count"`
	// Addresses name the first of them, and their owners.
	Addresses string `json:"addresses"`
	// Shared: pods get them nevertheless.
	Shared bool `json:"shared,omitempty"`
}

// closed is a CIDR of a pool that would assign no more blocks, or none from the start.
type closed struct {
	Pool     string       `json:"pool"`
	CIDR     netip.Prefix `json:"cidr"`
	By       string       `json:"by"`
	Overlaps netip.Prefix `json:"overlaps"`
	// Nodes hold blocks of it, which they keep.
	Nodes []string `json:"nodes"`
}

// public is an added range of a pool.
type public struct {
	Pool string `json:"pool"`
	CIDR string `json:"cidr"`
}

// masqueraded are ranges of a pool that Cilium masquerades.
type masqueraded struct {
	Pool    string         `json:"pool"`
	CIDRs   []netip.Prefix `json:"cidrs"`
	Message string         `json:"message"`
}

type poolChange struct {
	Pool    string `json:"pool"`
	Family  string `json:"family"`
	Before  string `json:"before"`
	After   string `json:"after"`
	Message string `json:"message,omitempty"`
	Free    uint64 `json:"freeBlocks"`
}

type nodeChange struct {
	Node   string `json:"node"`
	Family string `json:"family"`
	// CiliumPool is the Cilium pool it is about; empty: the default one.
	CiliumPool string `json:"ciliumPool,omitempty"`
	PoolBefore string `json:"poolBefore"`
	PoolAfter  string `json:"poolAfter"`
	// Claims are the blocks it would claim at once.
	Claims []string `json:"claims"`
	Leaves []leaves `json:"leaves"`
	// Missing is the number of needed addresses that no pool has.
	Missing int    `json:"missing,omitempty"`
	Paused  string `json:"paused,omitempty"`
}

// leaves is a block that would need to leave.
type leaves struct {
	Block  string `json:"block"`
	Used   int    `json:"used"`
	Reason string `json:"reason"`
	// Stays: it stays until the node has addresses to replace it.
	Stays bool `json:"stays,omitempty"`
	// Until is the opening of the next maintenance window, when the block may begin to leave.
	Until *time.Time `json:"notBefore,omitempty"`
	// Orphaned: it would no longer lie in any CIDR of its pool.
	Orphaned bool `json:"orphaned,omitempty"`
}

// effectOf compares the decisions. It claims in both clusters.
func effectOf(before, after *cluster.Cluster) effect {
	x := effect{Pools: []poolChange{}, Nodes: []nodeChange{}, Unserved: []string{}}
	for _, name := range after.NodeNames() {
		was, is := firstSteps(before, name), firstSteps(after, name)
		for _, s := range sharesOf(was, is) {
			x.compare(name, s, was[s], is[s])
		}
	}
	states := map[string]string{}
	for _, r := range list.PoolRows(before) {
		states[r.Pool+" "+r.Family] = r.State
	}
	for _, r := range list.PoolRows(after) {
		was := states[r.Pool+" "+r.Family]
		if was == "" {
			was = "none"
		}
		if was != r.State {
			x.Pools = append(x.Pools, poolChange{Pool: r.Pool, Family: r.Family, Before: was, After: r.State, Message: r.Message, Free: uint64(r.Free)})
		}
	}
	for _, name := range after.Pools.Names() {
		pool := after.Pools.Get(name)
		for _, m := range after.Objects.CiliumConfig.Masqueraded(pool) {
			x.Masqueraded = append(x.Masqueraded, masqueraded{name, m.CIDRs, m.String()})
		}
		if excluded := after.Ledger.ExcludedFrom(pool); len(excluded) > 0 {
			x.Covered = append(x.Covered, covered{Pool: name, Count: len(excluded), Addresses: exclude.Words(excluded, after.Ledger.HolderOf)})
		}
		if shared := after.Ledger.SharedWith(pool); len(shared) > 0 {
			x.Covered = append(x.Covered, covered{Pool: name, Count: len(shared), Addresses: exclude.Words(shared, after.Ledger.HolderOf), Shared: true})
		}
	}
	x.closed(before, after)
	x.public(before, after)
	return x
}

// closed adds the CIDRs that an older pool would close, and does not yet.
func (x *effect) closed(before, after *cluster.Cluster) {
	for _, name := range after.Pools.Names() {
		was, is := closedOf(before.Pools.Get(name)), closedOf(after.Pools.Get(name))
		for _, cidr := range slices.SortedFunc(maps.Keys(is), netip.Prefix.Compare) {
			if _, closes := was[cidr]; closes {
				continue
			}
			c := closed{Pool: name, CIDR: cidr, By: is[cidr].ClosedBy, Overlaps: is[cidr].Overlap, Nodes: []string{}}
			for b := range after.Ledger.PoolBlocks(name) {
				if cidr.Overlaps(b.CIDR) {
					c.Nodes = append(c.Nodes, b.Node)
				}
			}
			slices.Sort(c.Nodes)
			c.Nodes = slices.Compact(c.Nodes)
			x.Closed = append(x.Closed, c)
		}
	}
}

// closedOf returns the CIDRs of a pool, which may be nil, that an older one closes.
func closedOf(pool *crd.Pool) map[netip.Prefix]crd.Range {
	closed := map[netip.Prefix]crd.Range{}
	for _, f := range ipalloc.Families() {
		if pool == nil {
			break
		}
		if ranges, ok := pool.Ranges(f); ok {
			for _, r := range ranges.CIDRs {
				if r.ClosedBy != "" {
					closed[r.CIDR] = r
				}
			}
		}
	}
	return closed
}

func (c *closed) words() string {
	text := fmt.Sprintf("pool %s assigns no block of %s, as pool %s is older, or first by name at the same age, and has %s", c.Pool, c.CIDR, c.By, c.Overlaps)
	if len(c.Nodes) > 0 {
		text += ". Nodes keep their blocks of it, and get no more: " + output.Few(c.Nodes)
	}
	return text
}

func (x *effect) public(before, after *cluster.Cluster) {
	for i := range after.Objects.Pools {
		obj := &after.Objects.Pools[i]
		pool, old := after.Pools.Get(obj.Name), before.Pools.Get(obj.Name)
		if pool == nil || obj.Annotations[v1alpha1.OwnRangesAnnotation] == "true" {
			continue
		}
		for _, cidr := range pool.PublicRanges() {
			if old == nil || !slices.Contains(old.PublicRanges(), cidr) {
				x.Public = append(x.Public, public{obj.Name, cidr.String()})
			}
		}
	}
}

func (x *effect) compare(name string, s share, was, is nodeChange) {
	is.Node, is.Family, is.CiliumPool, is.PoolBefore = name, s.family.String(), s.ciliumPool, was.PoolAfter
	before := map[string]bool{}
	for _, l := range was.Leaves {
		before[l.Block] = true
	}
	is.Leaves = slices.DeleteFunc(is.Leaves, func(l leaves) bool { return before[l.Block] })
	if was.PoolAfter != "" && is.PoolAfter == "" {
		x.Unserved = append(x.Unserved, name)
	}
	claimsSame := len(was.Claims) == len(is.Claims) && was.PoolAfter == is.PoolAfter && was.Missing == is.Missing
	if claimsSame && len(is.Leaves) == 0 {
		return
	}
	x.RoutesAdded += len(is.Claims)
	for _, l := range is.Leaves {
		x.InUse += l.Used
		if !l.Stays {
			x.RoutesRemoved++
		}
	}
	x.Nodes = append(x.Nodes, is)
}

func (x *effect) describe(s *output.Text) {
	for _, p := range x.Pools {
		s.Line("pool %s %s: %s -> %s (%s free)%s", p.Pool, p.Family, p.Before, p.After, output.Plural(int(min(p.Free, 1<<40)), "block", "blocks"), prefixed(": ", p.Message))
	}
	for i := range x.Closed {
		s.Line("%s", x.Closed[i].words())
	}
	for _, p := range x.Covered {
		outcome := "no pod gets these addresses, and no node a block that contains one"
		if p.Shared {
			outcome = "pods and Services both get these addresses, and can get the same one"
		}
		s.Line("pool %s covers %s: %s", p.Pool, p.Addresses, outcome)
	}
	for _, p := range x.Public {
		s.Line("pool %s has %s, which is neither private nor shared address space: see that it is assigned to you", p.Pool, p.CIDR)
	}
	for _, p := range x.Masqueraded {
		s.Line("pool %s has %s. %s", p.Pool, p.Message, ciliumconfig.MasqueradedFix)
	}
	claimed, missing, leaving, orphaned := 0, 0, 0, 0
	for i := range x.Nodes {
		n := &x.Nodes[i]
		s.Line("node %s %s: %s", n.Node, list.FamilyWords(n.Family, n.CiliumPool), n.words())
		claimed += len(n.Claims)
		missing += min(n.Missing, 1)
		leaving += len(n.Leaves)
		for _, l := range n.Leaves {
			if l.Orphaned {
				orphaned++
			}
		}
	}
	for _, n := range x.Unserved {
		s.Line("node %s: no pool would serve it any more", n)
	}
	if len(x.Nodes)+len(x.Pools)+len(x.Unserved) == 0 {
		s.Line("Nothing would change at once.")
	} else {
		s.Line("")
	}
	s.Line("%s hit: %s claimed, %s to go (%d in no CIDR of their pool any more) with %s in use.",
		output.Count(len(x.Nodes), "node"), output.Count(claimed, "block"), output.Count(leaving, "block"), orphaned, output.Plural(x.InUse, "address", "addresses"))
	s.Line("Routes: %d come, %d go once their pods have.", x.RoutesAdded, x.RoutesRemoved)
	if missing > 0 {
		s.Line("Not all get what they want: %s.", output.Count(missing, "node"))
	}
	s.Line("Nothing was written.")
}

func (n *nodeChange) words() string {
	var parts []string
	if n.PoolBefore != n.PoolAfter {
		parts = append(parts, fmt.Sprintf("pool %s -> %s", output.Dash(n.PoolBefore), output.Dash(n.PoolAfter)))
	}
	if len(n.Claims) > 0 {
		parts = append(parts, "claims "+output.Few(n.Claims))
	}
	for _, l := range n.Leaves {
		words := fmt.Sprintf("%s has to go (%s, %d in use)", l.Block, l.Reason, l.Used)
		if l.Until != nil {
			words += ", in the maintenance window that opens at " + l.Until.Format(time.RFC3339)
		}
		if l.Stays {
			words += ", but stays until there is something to replace it"
		}
		parts = append(parts, words)
	}
	if n.Missing > 0 {
		parts = append(parts, fmt.Sprintf("misses %s: no free block", output.Plural(n.Missing, "address", "addresses")))
	}
	if n.Paused != "" {
		parts = append(parts, "but nothing happens: "+n.Paused)
	}
	if len(parts) == 0 {
		parts = append(parts, "claims less than it would now")
	}
	return strings.Join(parts, "; ")
}

func prefixed(sign, s string) string {
	if s == "" {
		return ""
	}
	return sign + s
}

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
