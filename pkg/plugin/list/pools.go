// Package list has the commands of kubectl cilium-pool that list the present state: get and status.
package list

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// newPools returns the command get pools.
func newPools(e *cli.Env) *cobra.Command {
	var o output.Flags
	selector := ""
	cmd := &cobra.Command{
		Use:     "pools [POOL...]",
		Aliases: []string{"pool"},
		Short:   "List pools: how full they are, and whether they are fine",
		Long: `Lists PodIPPools, a line per address family, counted now from blocks and nodes:
it does not need the operator to run.

Selected is the number of nodes that claim from the pool first; Nodes is the number
that hold a block of it. Blocks are the held ones, of all that nodes hold or can get.
Free are the blocks that could be claimed now, and full is the share of the others.
Room is the number of nodes that still fit.

-o wide also shows whether a maintenance window is open, of the pool's own or of the
operator's flags.`,
		Example:           cli.Examples("get pools", "get pools zone-a -o wide", "get pools -o json | jq '.[] | select(.freeBlocks < 10)'"),
		ValidArgsFunction: e.CompletePools,
		RunE: func(cmd *cobra.Command, args []string) error {
			picked, err := cli.ParseSelector(selector, args)
			if err != nil {
				return err
			}
			return e.List(cmd.Context(), &o, func(c *cluster.Cluster) (output.Listed, error) {
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

// pickedPools returns the rows of pools by name, or by labels.
func pickedPools(c *cluster.Cluster, names []string, picked labels.Selector) ([]PoolRow, error) {
	for _, name := range names {
		if c.PodIPPools[name] == nil {
			return nil, fmt.Errorf("there is no PodIPPool %s%s", name, suggest.DidYouMean(name, slices.Collect(maps.Keys(c.PodIPPools))))
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

func poolTable(rows []PoolRow, now time.Time) output.Table {
	t := output.Table{
		Columns: output.Columns("Pool", "Family", "Priority+", "Selected", "Nodes", "Block+", "Blocks", "Free", "Full", "Room", "Draining+", "Cooling Down+", "Used", "Window+", "CIDRs+", "State"),
		Empty:   "No pools found.",
	}
	for i := range rows {
		r := &rows[i]
		t.Cells = append(t.Cells, []any{
			r.Pool, output.Dash(r.Family), r.Priority, r.Selected, r.Nodes, fmt.Sprintf("/%d", r.BlockBits),
			fmt.Sprintf("%d/%s", r.Blocks.held(), output.Many(uint64(r.Total))), output.Many(uint64(r.Free)), fmt.Sprintf("%d%%", r.Full),
			output.Many(uint64(r.Room)),
			r.Blocks.Draining, r.Blocks.CoolingDown, output.Fraction(r.Used, r.Addresses), r.Window.words(now), output.Few(r.CIDRs), r.State,
		})
	}
	return t
}
