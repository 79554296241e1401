// Package list has the commands of kubectl cilium-pool that list what there is now:
// pools, nodes, blocks, top and status.
package list

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

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// PoolRow is one family of a pool, for users and scripts.
type PoolRow struct {
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
	Blocks    PhaseCount `json:"blocks"`
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

// NewPools is the command pools.
func NewPools(e *cli.Env) *cobra.Command {
	var o output.Flags
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
		Example:           cli.Examples("pools", "pools zone-a -o wide", "pools -o json | jq '.[] | select(.freeBlocks < 10)'"),
		ValidArgsFunction: e.CompletePools,
		RunE: func(cmd *cobra.Command, args []string) error {
			picked, err := cli.ParseSelector(selector, args)
			if err != nil {
				return err
			}
			return e.List(cmd.Context(), &o, func() (output.Listed, error) {
				c, err := e.Read(cmd.Context())
				if err != nil {
					return output.Listed{}, err
				}
				e.Warn(noForecast(c))
				rows, err := pickedPools(c, args, picked)
				names := output.NamesOf("podippool.cilium-pool.io/", rows, func(r PoolRow) string { return r.Pool })
				return output.Listed{Rows: rows, Names: names, Table: poolTable(rows, c.Now)}, err
			})
		},
	}
	cli.AddSelector(cmd, &selector, "PodIPPools")
	o.AddListFlags(cmd)
	return cmd
}

// pickedPools are the rows of pools by name, or of those with labels.
func pickedPools(c *cluster.Cluster, names []string, picked labels.Selector) ([]PoolRow, error) {
	for _, name := range names {
		if c.PodIPPools[name] == nil {
			return nil, fmt.Errorf("there is no PodIPPool %s%s", name, output.DidYouMean(name, slices.Collect(maps.Keys(c.PodIPPools))))
		}
	}
	rows := []PoolRow{}
	for _, r := range PoolRows(c) {
		if len(names) == 0 && picked.Matches(labels.Set(c.PodIPPools[r.Pool].Labels)) || slices.Contains(names, r.Pool) {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// PoolRows are a row for each family of each pool.
func PoolRows(c *cluster.Cluster) []PoolRow {
	used := usedByBlock(c)
	var rows []PoolRow
	for _, name := range c.Pools.Names() {
		pool := c.Pools.Get(name)
		any := false
		for _, f := range ipalloc.Families() {
			if _, ok := pool.Ranges(f); ok {
				rows = append(rows, poolRowOf(c, pool, f, used))
				any = true
			}
		}
		if !any {
			rows = append(rows, PoolRow{Pool: name, Priority: pool.Priority, State: "Invalid", Message: "it has no ranges"})
		}
	}
	return rows
}

func poolRowOf(c *cluster.Cluster, pool *crd.Pool, f ipalloc.Family, used map[string]int) PoolRow {
	pool = pool.Skipping(exclude.CIDRs(c.Ledger.ExcludedFrom(pool)))
	r := PoolRow{Pool: pool.Name, Family: f.String(), Priority: pool.Priority, CIDRs: []string{}}
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
		r.Free = c.Ledger.Free(cut)
	}
	holders, tally, skipped := map[string]bool{}, crd.NewTally(pool), crd.NewTally(pool)
	for b := range c.Ledger.PoolBlocks(pool.Name) {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == f {
			tally.Add(b)
			if pool.Skips(b.CIDR) {
				skipped.Add(b) // held before its range was reserved or excluded
			}
			r.Addresses += c.UsableCount(b)
			r.Used += used[b.Name]
			holders[b.Node] = true
		}
	}
	sum := tally.Sum()[f]
	for _, n := range skipped.Sum()[f] {
		r.Total += uint64(n)
	}
	r.Blocks = PhaseCount{
		InService: int(sum[ipalloc.InService]), Draining: int(sum[ipalloc.Draining]), CoolingDown: int(sum[ipalloc.CoolingDown]),
	}
	r.Nodes, r.Selected = len(holders), selectedNodes(c, pool.Name, f)
	foresee(c, pool, f, &r)
	r.Window = windowOf(pool, c.Now)
	r.State, r.Message = poolState(c, pool, f, &r)
	return r
}

// foresee takes up what the operator would: by the history that it keeps of the
// pool, and the blocks that are free now.
func foresee(c *cluster.Cluster, pool *crd.Pool, f ipalloc.Family, r *PoolRow) {
	expected := meta.IsStatusConditionTrue(c.PodIPPools[pool.Name].Status.Conditions, v1alpha1.PoolExhaustedSoon)
	seen := controller.Foresee(c.Now, pool, f, controller.HeldBlocks(c.Histories[pool.Name], f), int64(min(r.Free, math.MaxInt64)), expected)
	r.Room = seen.Room
	if seen.Over > 0 {
		r.BlocksPerHour = &seen.PerHour
	}
	if at := c.Now.Add(seen.Left).UTC().Truncate(time.Second); seen.Expected {
		r.ExhaustedAt = &at
	}
}

// noForecast explains why there is no forecast of any pool; "": there may be.
func noForecast(c *cluster.Cluster) string {
	if c.Objects.HistoriesUnread == "" {
		return ""
	}
	return "no pool has a forecast: " + c.Objects.HistoriesUnread
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

// selectedNodes is how many Nodes a pool rules.
func selectedNodes(c *cluster.Cluster, pool string, f ipalloc.Family) int {
	n, ciliumPool := 0, c.Pools.Get(pool).CiliumPool
	for _, node := range c.Nodes {
		if ranked := crd.ForFamily(c.Pools.Match(labels.Set(node.Labels)), f, ciliumPool); len(ranked) > 0 && ranked[0].Name == pool {
			n++
		}
	}
	return n
}

// usedByBlock is how many addresses of each block are in use, by name.
func usedByBlock(c *cluster.Cluster) map[string]int {
	used := map[string]int{}
	for _, node := range c.Ledger.Nodes() {
		users := c.Users(node)
		for _, b := range c.Ledger.NodeBlocks(node) {
			used[b.Name] = cluster.CountIn(b.CIDR, users)
		}
	}
	return used
}

// poolState returns the worst state of a pool.
func poolState(c *cluster.Cluster, pool *crd.Pool, f ipalloc.Family, r *PoolRow) (state, message string) {
	if err := c.Pools.Invalid(pool.Name); err != nil {
		return "Invalid", err.Error()
	}
	switch {
	case pool.Deleting:
		return "Deleting", fmt.Sprintf("it waits for %s", output.Count(r.Blocks.held(), "block"))
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

func poolTable(rows []PoolRow, now time.Time) output.Table {
	t := output.Table{
		Columns: output.Columns("Pool", "Family", "Priority+", "Selected", "Nodes", "Block+", "Blocks", "Free", "Full", "Room", "Per Hour+", "Lasts", "Draining+", "Resting+", "Used", "Window+", "CIDRs+", "State"),
		Empty:   "No pools found.",
	}
	for i := range rows {
		r := &rows[i]
		t.Cells = append(t.Cells, []any{
			r.Pool, output.Dash(r.Family), fmt.Sprint(r.Priority), fmt.Sprint(r.Selected), fmt.Sprint(r.Nodes), fmt.Sprintf("/%d", r.BlockBits),
			fmt.Sprintf("%d/%s", r.Blocks.held(), output.Many(r.Total)), output.Many(r.Free), percentOf(r.Blocks.held(), r.Total),
			output.Many(uint64(r.Room)), perHour(r.BlocksPerHour), lasts(now, r),
			fmt.Sprint(r.Blocks.Draining), fmt.Sprint(r.Blocks.CoolingDown), output.Fraction(r.Used, r.Addresses), r.Window.words(now), output.Few(r.CIDRs), r.State,
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
func lasts(now time.Time, r *PoolRow) string {
	if r.ExhaustedAt == nil {
		return "-"
	}
	return duration.HumanDuration(r.ExhaustedAt.Sub(now))
}

func percentOf(part int, whole uint64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", controller.Percent(int64(part), int64(min(whole, math.MaxInt64))))
}
