package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

type effect struct {
	Pools []poolChange `json:"pools"`
	Nodes []nodeChange `json:"nodes"`
	// Unserved are nodes that a pool serves now and none would.
	Unserved []string `json:"unserved"`
	// RoutesAdded and RoutesRemoved count the podCIDRs that are added and removed.
	RoutesAdded   int `json:"routesAdded"`
	RoutesRemoved int `json:"routesRemoved"`
	// Notes say what else would come of the pools: CIDRs that an older pool closes, addresses of
	// nodes and Services in them, ranges that may be other people's, and ranges that Cilium
	// masquerades.
	Notes []string `json:"notes,omitempty"`
	// InUse counts the addresses in use in blocks that would need to leave.
	InUse int `json:"inUse"`
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
	Until time.Time `json:"notBefore,omitzero"`
	// Orphaned: it would no longer lie in any CIDR of its pool.
	Orphaned bool `json:"orphaned,omitempty"`
}

// effectOf compares the decisions. It claims in both clusters.
func effectOf(current, edited *clusterview.Cluster) effect {
	x := effect{Pools: []poolChange{}, Nodes: []nodeChange{}, Unserved: []string{}}
	for _, name := range edited.NodeNames() {
		oldSteps := firstSteps(current, name)
		newSteps := firstSteps(edited, name)
		shares := maps.Clone(oldSteps)
		maps.Copy(shares, newSteps)
		for _, share := range slices.Sorted(maps.Keys(shares)) {
			x.compare(name, oldSteps[share], newSteps[share])
		}
	}
	states := map[string]string{}
	for _, r := range list.PoolRows(current) {
		states[r.Pool+" "+r.Family] = r.State
	}
	for _, r := range list.PoolRows(edited) {
		if old := cmp.Or(states[r.Pool+" "+r.Family], "none"); old != r.State {
			x.Pools = append(x.Pools, poolChange{Pool: r.Pool, Family: r.Family, Before: old, After: r.State, Message: r.Message, Free: uint64(r.Free)})
		}
	}
	x.noteClosed(current, edited)
	for _, name := range edited.State.Pools.Names() {
		pool := edited.State.Pools.Get(name)
		x.noteCovered(edited, name, edited.State.Ledger.Exclusions.ExcludedFrom(pool), "no pod gets these addresses, and no node a block that contains one")
		x.noteCovered(edited, name, edited.State.Ledger.Exclusions.SharedWith(pool), "objects ask for more than a quarter of the blocks of a CIDR, so pods can get these addresses, too")
	}
	x.notePublic(current, edited)
	for _, name := range edited.State.Pools.Names() {
		for _, m := range edited.Objects.CiliumConfig.Masqueraded(edited.State.Pools.Get(name)) {
			x.note("pool %s has %s. %s", name, m, ciliumconfig.MasqueradedFix)
		}
	}
	return x
}

func (x *effect) note(format string, args ...any) {
	x.Notes = append(x.Notes, fmt.Sprintf(format, args...))
}

func (x *effect) noteCovered(c *clusterview.Cluster, pool string, addresses []exclude.Range, outcome string) {
	if len(addresses) > 0 {
		x.note("pool %s covers %s: %s", pool, exclude.Words(addresses, c.State.Ledger.HolderOf), outcome)
	}
}

// noteClosed notes the CIDRs that an older pool would close, and does not yet. Nodes keep their
// blocks of them.
func (x *effect) noteClosed(current, edited *clusterview.Cluster) {
	for _, name := range edited.State.Pools.Names() {
		closed := closedOf(current, name)
		for _, r := range closedOf(edited, name) {
			if slices.ContainsFunc(closed, func(old crd.Range) bool { return old.CIDR == r.CIDR }) {
				continue
			}
			nodes := map[string]bool{}
			keep := ""
			for b := range edited.State.Ledger.PoolBlocks(name) {
				if r.CIDR.Overlaps(b.CIDR) {
					nodes[b.Node] = true
				}
			}
			if len(nodes) > 0 {
				keep = ". Nodes keep their blocks of it, and get no more: " + suggest.Few(slices.Sorted(maps.Keys(nodes)))
			}
			x.note("pool %s assigns no block of %s, as pool %s is older, or first by name at the same age, and has %s%s", name, r.CIDR, r.YieldsTo, r.Overlap, keep)
		}
	}
}

// closedOf returns the CIDRs of a pool that an older one closes, sorted.
func closedOf(c *clusterview.Cluster, name string) []crd.Range {
	closed := slices.DeleteFunc(c.State.Pools.Get(name).AllRanges(), func(r crd.Range) bool { return r.YieldsTo == "" })
	slices.SortFunc(closed, func(a, b crd.Range) int { return a.CIDR.Compare(b.CIDR) })
	return closed
}

// notePublic notes the added ranges that are neither private nor shared address space.
func (x *effect) notePublic(current, edited *clusterview.Cluster) {
	for i := range edited.Objects.Pools {
		obj := &edited.Objects.Pools[i]
		pool := edited.State.Pools.Get(obj.Name)
		old := current.State.Pools.Get(obj.Name)
		if pool == nil || obj.Annotations[v1alpha1.OwnRangesAnnotation] == "true" {
			continue
		}
		for _, cidr := range pool.PublicRanges() {
			if old == nil || !slices.Contains(old.PublicRanges(), cidr) {
				x.note("pool %s has %s, which is neither private nor shared address space: see that it is assigned to you", obj.Name, cidr)
			}
		}
	}
}

func (x *effect) compare(name string, old, next nodeChange) {
	next.Node, next.Family, next.CiliumPool, next.PoolBefore = name, cmp.Or(next.Family, old.Family), cmp.Or(next.CiliumPool, old.CiliumPool), old.PoolAfter
	oldBlocks := map[string]bool{}
	for _, l := range old.Leaves {
		oldBlocks[l.Block] = true
	}
	next.Leaves = slices.DeleteFunc(next.Leaves, func(l leaves) bool { return oldBlocks[l.Block] })
	if old.PoolAfter != "" && next.PoolAfter == "" {
		x.Unserved = append(x.Unserved, name)
	}
	claimsSame := len(old.Claims) == len(next.Claims) && old.PoolAfter == next.PoolAfter && old.Missing == next.Missing
	if claimsSame && len(next.Leaves) == 0 {
		return
	}
	x.RoutesAdded += len(next.Claims)
	for _, l := range next.Leaves {
		x.InUse += l.Used
		if !l.Stays {
			x.RoutesRemoved++
		}
	}
	x.Nodes = append(x.Nodes, next)
}

func (x *effect) describe(s *cli.Text) {
	for _, p := range x.Pools {
		line := fmt.Sprintf("pool %s %s: %s -> %s (%s free): %s", p.Pool, p.Family, p.Before, p.After, suggest.Count(int(min(p.Free, 1<<40)), "block"), p.Message)
		s.Line("%s", strings.TrimSuffix(line, ": "))
	}
	for _, note := range x.Notes {
		s.Line("%s", note)
	}
	claimed := 0
	missing := 0
	leaving := 0
	orphaned := 0
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
		suggest.Count(len(x.Nodes), "node"), suggest.Count(claimed, "block"), suggest.Count(leaving, "block"), orphaned, suggest.Plural(x.InUse, "address", "addresses"))
	s.Line("Routes: %d come, %d go once their pods have.", x.RoutesAdded, x.RoutesRemoved)
	if missing > 0 {
		s.Line("Not all get what they want: %s.", suggest.Count(missing, "node"))
	}
	s.Line("Nothing was written.")
}

func (n *nodeChange) words() string {
	var parts []string
	if n.PoolBefore != n.PoolAfter {
		parts = append(parts, fmt.Sprintf("pool %s -> %s", cli.Dash(n.PoolBefore), cli.Dash(n.PoolAfter)))
	}
	if len(n.Claims) > 0 {
		parts = append(parts, "claims "+suggest.Few(n.Claims))
	}
	for _, l := range n.Leaves {
		words := fmt.Sprintf("%s has to go (%s, %d in use)", l.Block, l.Reason, l.Used)
		if !l.Until.IsZero() {
			words += ", in the maintenance window that opens at " + l.Until.Format(time.RFC3339)
		}
		if l.Stays {
			words += ", but stays until there is something to replace it"
		}
		parts = append(parts, words)
	}
	if n.Missing > 0 {
		parts = append(parts, fmt.Sprintf("misses %s: no free block", suggest.Plural(n.Missing, "address", "addresses")))
	}
	if n.Paused != "" {
		parts = append(parts, "but nothing happens: "+n.Paused)
	}
	if len(parts) == 0 {
		parts = append(parts, "claims less than it would now")
	}
	return strings.Join(parts, "; ")
}

// firstSteps returns the first steps of a node, by family and Cilium pool, as changes from zero.
// Their claims are taken in the cluster's ledger.
func firstSteps(c *clusterview.Cluster, name string) map[string]nodeChange {
	steps := map[string]nodeChange{}
	users := c.Users(name)
	for _, d := range c.Decide(name) {
		n := nodeChange{Family: d.Family.String(), CiliumPool: d.CiliumPool, PoolAfter: d.Ruling(), Paused: d.Standing.Because(), Claims: []string{}, Leaves: []leaves{}}
		for _, b := range d.State.Blocks {
			if b.Request == expand.None || b.Phase == ipalloc.CoolingDown {
				continue
			}
			block, _ := c.State.Ledger.Block(b.CIDR)
			pool := c.State.Pools.Get(block.Pool)
			l := leaves{
				Block: block.Name, Used: clusterview.CountIn(b.CIDR, users), Reason: string(b.Request),
				Orphaned: pool == nil || !pool.Deleting && !pool.OnGrid(b.CIDR),
			}
			if b.Delay.Reason == expand.WaitWindow {
				l.Until = b.Delay.Until.UTC()
			}
			n.Leaves = append(n.Leaves, l)
		}
		if d.Standing.MayChange() && c.Nodes[name] != nil {
			n.Claims, n.Missing = claimBlocks(c, &d)
		}
		for i := range n.Leaves {
			n.Leaves[i].Stays = n.Missing > 0
		}
		steps[list.FamilyWords(n.Family, n.CiliumPool)] = n
	}
	return steps
}

// claimBlocks claims blocks as the operator would: as many as the plan needs.
func claimBlocks(c *clusterview.Cluster, d *clusterview.Decision) (blocks []string, missing int) {
	blocks = []string{}
	want := d.Plan.Claim
	for got := 0; ; {
		ok, pinned := want.Next(len(blocks), got)
		if !ok {
			return blocks, 0
		}
		claim := c.State.Ledger.Claim
		if pinned {
			claim = c.State.Ledger.ClaimPinned
		}
		cidr, pool, err := claim(d.Family, d.State.Node, c.State.Agents.Container(d.State.Node), d.Pools)
		if err != nil {
			return blocks, max(0, want.Addresses-got) // ipalloc.ErrExhausted: the ledger is ready
		}
		if d.State.BlockAssignment != nil {
			got += c.State.Ledger.CiliumNode(d.State.Node).Of(d.CiliumPool).BlockAssignment.Count(cidr)
		} else {
			got += pool.UsableCount(cidr)
		}
		blocks = append(blocks, cidr.String())
	}
}
