// Package list has the commands of kubectl cilium-pool that list the present state: get and status.
package list

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// NewGet returns the command get.
func NewGet(e *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get nodes|pools|blocks|addresses",
		Short: "List nodes, pools, blocks or kept addresses",
		Long: `Lists nodes, pools, blocks or kept addresses with what kubectl get cannot know, such as
the addresses in use and needed.`,
		Example: cli.Examples("get pools", "get nodes -l zone=a -o wide", "get blocks --node edge-01", "get addresses shop/web-0"),
		RunE: func(*cobra.Command, []string) error {
			return cli.Usagef("say what to list: nodes, pools, blocks or addresses")
		},
	}
	cmd.AddCommand(newNodes(e), newPools(e), newBlocks(e), newAddresses(e))
	return cmd
}

func newPools(e *cli.Env) *cobra.Command {
	o := cli.Output{Kind: "PoolList", Named: v1alpha1.GroupVersion.WithKind("PodIPPool")}
	cmd := &cobra.Command{
		Use:     "pools [POOL...]",
		Aliases: []string{"pool"},
		Short:   "List pools: how full they are, and whether they are fine",
		Long: `Lists PodIPPools, a line per address family, counted now from blocks and nodes:
it does not need the operator to run.

Selected is the number of Nodes that the pool's nodeSelector picks; Nodes is the number
that hold a block of it. Held counts blocks, of the assignable ones; Used counts addresses
of held blocks. Full is heldPercent, and Room is roomForNodes.

-o wide also shows whether a maintenance window is open, of the pool's own or of the
operator's flags.`,
		Example:           cli.Examples("get pools", "get pools zone-a -o wide", "get pools -o json | jq '.items[] | select(.freeBlocks < 10)'"),
		ValidArgsFunction: e.CompletePools,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.ReadWithoutPods(cmd.Context())
			if err != nil {
				return err
			}
			rows, err := pickedPools(c, args)
			if err != nil {
				return err
			}
			return e.Print(&o, rows, poolTable(rows, c.Now))
		},
	}
	o.AddFlags(cmd)
	return cmd
}

func pickedPools(c *clusterview.Cluster, names []string) ([]PoolRow, error) {
	for _, name := range names {
		if c.PodIPPools[name] == nil {
			return nil, fmt.Errorf("there is no PodIPPool %s%s", name, suggest.DidYouMean(name, slices.Collect(maps.Keys(c.PodIPPools))))
		}
	}
	return slices.DeleteFunc(PoolRows(c), func(r PoolRow) bool { return len(names) > 0 && !slices.Contains(names, r.Pool) }), nil
}

func poolTable(rows []PoolRow, now time.Time) cli.Table {
	return cli.TableOf("pools", rows, func(r *PoolRow) []any {
		return []any{
			r.Pool, cli.Dash(r.Family), r.Priority, r.Selected, r.Nodes, fmt.Sprintf("/%d", r.BlockBits),
			fmt.Sprintf("%d/%s", r.Blocks.Held(), cli.Many(uint64(r.Assignable))), cli.Many(uint64(r.Free)), fmt.Sprintf("%d%%", r.Full), cli.Many(uint64(r.Room)),
			r.Blocks.Draining, r.Blocks.CoolingDown, cli.Fraction(r.Used, r.Addresses), r.Window.words(now), suggest.Few(r.CIDRs), r.State,
		}
	}, "Pool", "Family", "Priority+", "Selected", "Nodes", "Block+", "Held", "Free", "Full", "Room", "Draining+", "Cooling Down+", "Used", "Window+", "CIDRs+", "State")
}

// PoolRow is one family of a pool, for users and scripts.
type PoolRow struct {
	Pool     string `json:"pool"`
	Family   string `json:"family"`
	Priority int32  `json:"priority"`
	// Nodes is the number of nodes that hold a block of it, Selected the number of Nodes that its
	// nodeSelector picks.
	Nodes    int `json:"nodes"`
	Selected int `json:"selectedNodes"`
	// BlockBits is the prefix length of a block.
	BlockBits int      `json:"blockBits"`
	CIDRs     []string `json:"cidrs"`
	// Assignable, Free and Full are blocks.assignable, blocks.free and heldPercent of the
	// family's status.
	Assignable int64      `json:"assignableBlocks"`
	Free       int64      `json:"freeBlocks"`
	Full       int32      `json:"heldPercent"`
	Blocks     PhaseCount `json:"blocks"`
	// Addresses is the number of addresses of its held blocks that pods can have, Used the number
	// in use.
	Addresses int `json:"addresses"`
	Used      int `json:"used"`
	// Room is the number of nodes that still fit.
	Room int64 `json:"room"`
	// Window is the pool's maintenance window. Null: blocks may leave at any time.
	Window *windowRow `json:"maintenanceWindow"`
	// State is Ready, Invalid, Deleting, Idle, Paused, Empty, PhasingOut, SelectsNoNode, Exhausted or Overlapping.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

// windowRow is whether a maintenance window is open, and until when that lasts. Without Until
// it lasts forever.
type windowRow struct {
	Open  bool      `json:"open"`
	Until time.Time `json:"until,omitzero"`
}

// PoolRows returns a row for each family of each pool.
func PoolRows(c *clusterview.Cluster) []PoolRow {
	blocks := BlockRows(c, BlockFilter{})
	rows := []PoolRow{}
	for _, name := range c.State.Pools.Names() {
		pool := c.State.Pools.Get(name)
		var counted [2]*state.FamilyUsage // nil while the pool is invalid
		for _, f := range state.FamiliesOf(c.State.Ledger, pool) {
			counted[f.Family] = &f
		}
		any := false
		for _, f := range ipalloc.Families() {
			if _, ok := pool.Ranges(f); ok {
				rows = append(rows, poolRowOf(c, pool, f, counted[f], blocks))
				any = true
			}
		}
		if !any {
			rows = append(rows, PoolRow{Pool: name, Priority: pool.Priority, State: "Invalid", Message: "it has no ranges"})
		}
	}
	return rows
}

func poolRowOf(c *clusterview.Cluster, pool *crd.Pool, f ipalloc.Family, counted *state.FamilyUsage, blocks []BlockRow) PoolRow {
	r := PoolRow{Pool: pool.Name, Family: f.String(), Priority: pool.Priority, CIDRs: []string{}}
	if counted != nil {
		n := counted.Status.Blocks
		r.Assignable = n.Assignable
		r.Free = n.Free
		r.Full = counted.Full()
		r.Blocks = PhaseCount{InService: int(n.InService), Draining: int(n.Draining), CoolingDown: int(n.CoolingDown)}
	}
	if ranges, ok := pool.Ranges(f); ok {
		r.BlockBits = ranges.Bits
		for _, rng := range ranges.CIDRs {
			r.CIDRs = append(r.CIDRs, rangeWords(rng))
		}
	}
	holders := map[string]bool{}
	for i := range blocks {
		if b := &blocks[i]; b.Pool == pool.Name && b.Family == r.Family {
			r.Addresses += b.Addresses
			r.Used += b.Used
			holders[b.Node] = true
			if pool.Frozen() { // which counts in no blocks
				r.Blocks.Add(b.Phase)
			}
		}
	}
	r.Nodes = len(holders)
	r.Selected = pool.CountSelected(c.Objects.Nodes)
	r.Room = state.NodesThatFit(pool, f, r.Free)
	r.Window = windowOf(pool, c.Now)
	r.State, r.Message = poolState(c, pool, f, &r)
	return r
}

func windowOf(pool *crd.Pool, now time.Time) *windowRow {
	if pool.Maintenance.Windows == nil {
		return nil
	}
	current := pool.Maintenance.Windows.At(now)
	return &windowRow{Open: current.Open, Until: current.Until.UTC()}
}

func (w *windowRow) words(now time.Time) string {
	if w == nil {
		return "-"
	}
	if w.Until.IsZero() {
		return "closed"
	}
	if w.Open {
		return "open for " + duration.HumanDuration(w.Until.Sub(now))
	}
	return "opens in " + duration.HumanDuration(w.Until.Sub(now))
}

func rangeWords(r crd.Range) string {
	if r.Drains() {
		return r.CIDR.String() + " (draining)"
	}
	if !r.Allocates() {
		return r.CIDR.String() + " (cordoned)"
	}
	if r.YieldsTo != "" {
		return fmt.Sprintf("%s (pool %s gives it out)", r.CIDR, r.YieldsTo)
	}
	return r.CIDR.String()
}

// selectsNone reports whether a pool's nodeSelector picks no Node, as far as Nodes may be read.
func selectsNone(c *clusterview.Cluster, pool *crd.Pool, r *PoolRow) bool {
	return r.Selected == 0 && !pool.Selector.Empty() && !c.CannotRead("Nodes")
}

func poolState(c *clusterview.Cluster, pool *crd.Pool, f ipalloc.Family, r *PoolRow) (name, message string) {
	if err := c.State.Pools.Invalid(pool.Name); err != nil {
		return "Invalid", err.Error()
	}
	ranges, _ := pool.Ranges(f)
	closed := slices.IndexFunc(ranges.CIDRs, func(r crd.Range) bool { return r.YieldsTo != "" })
	_, open := pool.Cut(f)
	switch {
	case pool.Deleting:
		return "Deleting", fmt.Sprintf("it waits for %s", suggest.Count(r.Blocks.Held(), "block"))
	case pool.Inactive:
		return "Idle", "spec.ciliumPoolName is " + pool.CiliumPool + ", and agents have no pools in this mode: it serves no node"
	case pool.Paused:
		return "Paused", "spec.paused: nothing changes on its nodes"
	case pool.PhasesOut(f) && r.Blocks.Held() == 0:
		return "Empty", "no block of it is left: it can be deleted"
	case pool.PhasesOut(f):
		return "PhasingOut", ""
	case selectsNone(c, pool, r):
		return "SelectsNoNode", "nodeSelector picks no Node: " + pool.SelectsNone(c.Objects.Nodes)
	case r.Free == 0 && (open || closed < 0):
		return "Exhausted", fmt.Sprintf("no free block is left; %s. Add a CIDR, or a pool of lower priority for the same nodes",
			c.State.Ledger.Cooldowns(pool, f))
	}
	if closed >= 0 {
		rng := &ranges.CIDRs[closed]
		return "Overlapping", fmt.Sprintf("%s overlaps %s of pool %s, which gives it out", rng.CIDR, rng.Overlap, rng.YieldsTo)
	}
	if err := pool.Maintenance.Problem; err != nil {
		return "Ready", "but no maintenance window of it opens: " + err.Error()
	}
	return "Ready", ""
}
