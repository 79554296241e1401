package plugin

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// poolRow is one family of a pool, for users and scripts.
type poolRow struct {
	Pool     string `json:"pool"`
	Family   string `json:"family"`
	Priority int32  `json:"priority"`
	// Nodes is how many nodes hold a block of it, Selected how many nodes claim from it
	// first.
	Nodes    int `json:"nodes"`
	Selected int `json:"selectedNodes"`
	// BlockBits is the prefix length of a block.
	BlockBits int        `json:"blockBits"`
	CIDRs     []string   `json:"cidrs"`
	Total     uint64     `json:"totalBlocks"`
	Free      uint64     `json:"freeBlocks"`
	Blocks    phaseCount `json:"blocks"`
	// Addresses are those of its blocks held that pods can have, Used those in use.
	Addresses int `json:"addresses"`
	Used      int `json:"used"`
	// Room is how many more nodes fit.
	Room int64 `json:"room"`
	// BlocksPerHour is by how many blocks more are held each hour, bursts aside,
	// and ExhaustedAt when none is expected to be free. Null: not known, and not
	// expected within a week.
	BlocksPerHour *float64   `json:"blocksPerHour"`
	ExhaustedAt   *time.Time `json:"exhaustedAt"`
	// Window is the pool's maintenance window. Null: blocks may leave at any time.
	Window *windowRow `json:"maintenanceWindow"`
	// State is Ready, Invalid, Idle, Paused, Deleting, Exhausted or Overlapping.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

// windowRow says whether a maintenance window is open, and until when that stays
// so. Without Until it does for good.
type windowRow struct {
	Open  bool       `json:"open"`
	Until *time.Time `json:"until,omitempty"`
}

func (e *env) pools() *cobra.Command {
	var o output
	selector := ""
	cmd := &cobra.Command{
		Use:   "pools [POOL...]",
		Short: "List pools: how full they are, and whether they are fine",
		Long: `Lists PodIPPools, a line per address family, counted now from blocks and nodes:
it does not need the operator to run.

Selected is how many nodes claim from the pool first; Nodes is how many hold a
block of it, as in kubectl get podippools. Blocks are those held of all there are. Free are those that could be claimed now:
ranges that drain or belong to another pool, and blocks with addresses in use
elsewhere, are not free.

Room is how many more nodes fit. Lasts is for how long there are free blocks, if
what they grew by in the last hours or days goes on for as long again; "-" says
that no end is in sight. -o wide shows by how many blocks an hour. These follow
from the PodIPPoolHistory that the operator keeps of each pool.

-o wide also shows whether a maintenance window is open: one of the pool's own, or
one that a flag of the operator sets for all.`,
		Example:           examples("pools", "pools zone-a -o wide", "pools -o json | jq '.[] | select(.freeBlocks < 10)'"),
		ValidArgsFunction: e.completePools,
		RunE: func(cmd *cobra.Command, args []string) error {
			picked, err := picks(selector, args)
			if err != nil {
				return err
			}
			return e.list(cmd.Context(), &o, func() (listed, error) {
				c, err := e.read(cmd.Context())
				if err != nil {
					return listed{}, err
				}
				e.warn(c.noForecast())
				rows, err := c.pickedPools(args, picked)
				names := namesOf("podippool.cilium-pool.io/", rows, func(r poolRow) string { return r.Pool })
				return listed{rows, names, poolTable(rows, c.now)}, err
			})
		},
	}
	o.addFlags(cmd)
	o.names = func() []string { return nil }
	addSelector(cmd, &selector, "PodIPPools")
	o.addWatch(cmd)
	return cmd
}

// pickedPools are the rows of pools by name, or of those with labels.
func (c *cluster) pickedPools(names []string, picked labels.Selector) ([]poolRow, error) {
	for _, name := range names {
		if c.poolOf[name] == nil {
			return nil, fmt.Errorf("there is no PodIPPool %s%s", name, alike(name, slices.Collect(maps.Keys(c.poolOf))))
		}
	}
	rows := []poolRow{}
	for _, r := range c.poolRows() {
		if len(names) == 0 && picked.Matches(labels.Set(c.poolOf[r.Pool].Labels)) || slices.Contains(names, r.Pool) {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func (c *cluster) poolRows() []poolRow {
	used := c.usedByBlock()
	var rows []poolRow
	for _, name := range c.pools.Names() {
		pool := c.pools.Get(name)
		any := false
		for _, f := range ipalloc.Families() {
			if _, ok := pool.Ranges(f); ok {
				rows = append(rows, c.poolRow(pool, f, used))
				any = true
			}
		}
		if !any {
			rows = append(rows, poolRow{Pool: name, Priority: pool.Priority, State: "Invalid", Message: "it has no ranges"})
		}
	}
	return rows
}

func (c *cluster) poolRow(pool *crd.Pool, f ipalloc.Family, used map[string]int) poolRow {
	pool = pool.Skipping(exclude.CIDRs(c.ledger.ExcludedFrom(pool)))
	r := poolRow{Pool: pool.Name, Family: f.String(), Priority: pool.Priority, CIDRs: []string{}}
	if ranges, ok := pool.Ranges(f); ok {
		r.BlockBits = ranges.Bits
		for _, rng := range ranges.CIDRs {
			r.CIDRs = append(r.CIDRs, rangeWords(rng))
		}
	}
	if whole, ok := pool.Whole(f); ok {
		r.Total = pool.TotalBlocks(whole)
	}
	if cut, ok := pool.Cut(f); ok && !pool.Deleting {
		r.Free = c.ledger.Free(cut)
	}
	holders, tally, skipped := map[string]bool{}, crd.NewTally(pool), crd.NewTally(pool)
	for b := range c.ledger.PoolBlocks(pool.Name) {
		if familyOf(b) == f {
			tally.Add(b)
			if pool.Skips(b.CIDR) {
				skipped.Add(b) // held before its range was reserved or excluded
			}
			r.Addresses += c.usable(b)
			r.Used += used[b.Name]
			holders[b.Node] = true
		}
	}
	sum := tally.Sum()[f]
	for _, n := range skipped.Sum()[f] {
		r.Total += uint64(n)
	}
	r.Blocks = phaseCount{
		InService: int(sum[ipalloc.InService]), Draining: int(sum[ipalloc.Draining]), CoolingDown: int(sum[ipalloc.CoolingDown]),
	}
	r.Nodes, r.Selected = len(holders), c.ruled(pool.Name, f)
	c.foresee(pool, f, &r)
	r.Window = windowOf(pool, c.now)
	r.State, r.Message = c.poolState(pool, f, &r)
	return r
}

// foresee takes up what the operator would: by the history that it keeps of the
// pool, and the blocks that are free now.
func (c *cluster) foresee(pool *crd.Pool, f ipalloc.Family, r *poolRow) {
	expected := meta.IsStatusConditionTrue(c.poolOf[pool.Name].Status.Conditions, v1alpha1.PoolExhaustedSoon)
	seen := poolcontroller.Foresee(c.now, pool, f, poolcontroller.HeldBlocks(c.histories[pool.Name], f), int64(min(r.Free, math.MaxInt64)), expected)
	r.Room = seen.Room
	if seen.Over > 0 {
		r.BlocksPerHour = &seen.PerHour
	}
	if at := c.now.Add(seen.Left).UTC().Truncate(time.Second); seen.Expected {
		r.ExhaustedAt = &at
	}
}

// noForecast explains why there is no forecast of any pool; "": there may be.
func (c *cluster) noForecast() string {
	if c.snapshot.HistoriesUnread == "" {
		return ""
	}
	return "no pool has a forecast: " + c.snapshot.HistoriesUnread
}

func windowOf(pool *crd.Pool, now time.Time) *windowRow {
	if pool.Maintenance.Windows == nil {
		return nil
	}
	is := pool.Maintenance.Windows.At(now)
	w := &windowRow{Open: is.Open}
	if !is.Until.IsZero() {
		at := is.Until.UTC()
		w.Until = &at
	}
	return w
}

// words say for how long a window is open or closed.
func (w *windowRow) words(now time.Time) string {
	switch {
	case w == nil:
		return "-"
	case w.Until == nil:
		return "closed"
	case w.Open:
		return "open for " + duration.HumanDuration(w.Until.Sub(now))
	}
	return "opens in " + duration.HumanDuration(w.Until.Sub(now))
}

func rangeWords(r crd.Range) string {
	switch {
	case r.Drains():
		return r.CIDR.String() + " (draining)"
	case !r.Allocates():
		return r.CIDR.String() + " (cordoned)"
	case r.ClosedBy != "":
		return fmt.Sprintf("%s (pool %s gives it out)", r.CIDR, r.ClosedBy)
	}
	return r.CIDR.String()
}

// ruled is how many Nodes a pool rules.
func (c *cluster) ruled(pool string, f ipalloc.Family) int {
	n, ciliumPool := 0, c.pools.Get(pool).CiliumPool
	for _, node := range c.nodes {
		if ranked := crd.ForFamily(c.pools.Match(labels.Set(node.Labels)), f, ciliumPool); len(ranked) > 0 && ranked[0].Name == pool {
			n++
		}
	}
	return n
}

// usedByBlock is how many addresses of each block are in use, by name.
func (c *cluster) usedByBlock() map[string]int {
	used := map[string]int{}
	for _, node := range c.ledger.Nodes() {
		users := c.users(node)
		for _, b := range c.ledger.NodeBlocks(node) {
			used[b.Name] = usedIn(b.CIDR, users)
		}
	}
	return used
}

// poolState returns the worst state of a pool.
func (c *cluster) poolState(pool *crd.Pool, f ipalloc.Family, r *poolRow) (state, message string) {
	if err := c.pools.Invalid(pool.Name); err != nil {
		return "Invalid", err.Error()
	}
	switch {
	case pool.Deleting:
		return "Deleting", fmt.Sprintf("it waits for %s", count(r.Blocks.held(), "block"))
	case pool.Inactive:
		return "Idle", "spec.ciliumPoolName is " + pool.CiliumPool + ", and agents have no pools in this mode: it serves no node"
	case pool.Paused:
		return "Paused", "spec.paused: nothing changes on its nodes"
	case pool.PhasesOut(f) && r.Blocks.held() == 0:
		return "Empty", "no block of it is left: it can be deleted"
	case pool.PhasesOut(f):
		return "PhasingOut", ""
	case r.Free == 0:
		return "Exhausted", "no free block is left: add a CIDR, or a pool of lower priority for the same nodes"
	}
	if ranges, ok := pool.Ranges(f); ok {
		for _, rng := range ranges.CIDRs {
			if rng.ClosedBy != "" {
				return "Overlapping", fmt.Sprintf("%s overlaps %s of pool %s, which gives it out", rng.CIDR, rng.Overlap, rng.ClosedBy)
			}
		}
	}
	if err := pool.Maintenance.Problem; err != nil {
		return "Ready", "but no maintenance window of it opens: " + err.Error()
	}
	return "Ready", ""
}

func poolTable(rows []poolRow, now time.Time) table {
	t := table{
		columns: []column{
			{"Pool", false}, {"Family", false}, {"Priority", true}, {"Selected", false}, {"Nodes", false}, {"Block", true}, {"Blocks", false}, {"Free", false},
			{"Full", false}, {"Room", false}, {"Per Hour", true}, {"Lasts", false}, {"Draining", true}, {"Resting", true}, {"Used", false}, {"Window", true}, {"CIDRs", true}, {"State", false},
		},
		empty: "No pools found.",
	}
	for i := range rows {
		r := &rows[i]
		t.cells = append(t.cells, []any{
			r.Pool, dash(r.Family), fmt.Sprint(r.Priority), fmt.Sprint(r.Selected), fmt.Sprint(r.Nodes), fmt.Sprintf("/%d", r.BlockBits),
			fmt.Sprintf("%d/%s", r.Blocks.held(), many(r.Total)), many(r.Free), percentOf(r.Blocks.held(), r.Total),
			many(uint64(r.Room)), perHour(r.BlocksPerHour), lasts(now, r),
			fmt.Sprint(r.Blocks.Draining), fmt.Sprint(r.Blocks.CoolingDown), fraction(r.Used, r.Addresses), r.Window.words(now), few(r.CIDRs), r.State,
		})
	}
	return t
}

func perHour(blocks *float64) string {
	if blocks == nil {
		return "-"
	}
	return fmt.Sprintf("%+.3g", *blocks)
}

// lasts is for how long a pool is expected to have free blocks; "-": no end is
// in sight.
func lasts(now time.Time, r *poolRow) string {
	if r.ExhaustedAt == nil {
		return "-"
	}
	return duration.HumanDuration(r.ExhaustedAt.Sub(now))
}

func percentOf(part int, whole uint64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", poolcontroller.Percent(int64(part), int64(min(whole, math.MaxInt64))))
}
