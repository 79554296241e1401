package plugin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// blockRow is a block, for users and scripts.
type blockRow struct {
	Block  string `json:"block"`
	CIDR   string `json:"cidr"`
	Family string `json:"family"`
	Pool   string `json:"pool"`
	Node   string `json:"node"`
	// Phase is InService, Draining or CoolingDown.
	Phase  string     `json:"phase"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	// Addresses are those that pods can have, Used those of the block in use.
	Addresses int `json:"addresses"`
	Used      int `json:"used"`
	// WaitsFor is what a leaving block waits for.
	WaitsFor string `json:"waitsFor,omitempty"`
	// NeedsAction is the user action, if the wait does not end by itself.
	NeedsAction string    `json:"needsAction,omitempty"`
	Conflict    bool      `json:"conflict,omitempty"`
	Created     time.Time `json:"created"`
}

// which chooses blocks; empty fields choose all.
type which struct{ pool, node, phase string }

func blocksCommand(e *env) *cobra.Command {
	var o output
	var w which
	cmd := &cobra.Command{
		Use:   "blocks",
		Short: "List blocks: who holds them, how full they are, what they wait for",
		Long: `Lists PodIPBlocks with what kubectl get podipblocks cannot know: how many of
each block's addresses are in use, and what a block on its way out waits for.`,
		Example: examples("blocks", "blocks --node edge-01 -o wide", "blocks --phase Draining", "blocks --pool zone-a -o json | jq '.[] | select(.used == 0)'"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if w.phase != "" && !slices.Contains(phaseNames(), w.phase) {
				return usagef("--phase is %s: must be %s", w.phase, oneOf(phaseNames()))
			}
			return e.list(cmd.Context(), &o, func() (listed, error) {
				c, err := e.read(cmd.Context())
				if err != nil {
					return listed{}, err
				}
				if err := checkFilter(c, w); err != nil {
					return listed{}, err
				}
				rows := blockRows(c, w)
				names := namesOf("podipblock.cilium-pool.io/", rows, func(r blockRow) string { return r.Block })
				return listed{rows: rows, names: names, table: blockTable(c.now, rows)}, nil
			})
		},
	}
	o.addListFlags(cmd)
	cmd.Flags().StringVar(&w.pool, "pool", "", "only blocks of this pool")
	cmd.Flags().StringVar(&w.node, "node", "", "only blocks of this node")
	cmd.Flags().StringVar(&w.phase, "phase", "", "only blocks in this phase: InService, Draining or CoolingDown")
	_ = cmd.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions(phaseNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("pool", e.completePools)
	_ = cmd.RegisterFlagCompletionFunc("node", e.completeNodes)
	return cmd
}

func blockRows(c *cluster, w which) []blockRow {
	rows := []blockRow{}
	for _, node := range c.nodeNames() {
		if w.node != "" && w.node != node {
			continue
		}
		waits := c.waits(node)
		users := c.users(node)
		for _, b := range c.Ledger.NodeBlocks(node) {
			row := blockRow{
				Block: b.Name, CIDR: b.CIDR.String(), Family: ipalloc.FamilyOf(b.CIDR.Addr()).String(), Pool: b.Pool, Node: b.Node,
				Phase: b.Phase.String(), Reason: string(b.Reason), Conflict: b.Conflict,
				Addresses: c.usable(b), Used: usedIn(b.CIDR, users), WaitsFor: waits[b.Name].what, NeedsAction: waits[b.Name].action, Created: b.Created,
			}
			if !b.Since.IsZero() {
				row.Since = &b.Since
			}
			if (w.pool == "" || w.pool == b.Pool) && (w.phase == "" || w.phase == row.Phase) {
				rows = append(rows, row)
			}
		}
	}
	order := map[string]int{}
	for i, b := range c.blocks() {
		order[b.Name] = i
	}
	slices.SortFunc(rows, func(a, b blockRow) int { return order[a.Block] - order[b.Block] })
	return rows
}

// checkFilter fails where no pool or no node has the name given.
func checkFilter(c *cluster, w which) error {
	if w.node != "" {
		if err := c.knows(w.node); err != nil {
			return err
		}
	}
	if w.pool != "" && c.poolOf[w.pool] == nil && !slices.ContainsFunc(c.blocks(), func(b crd.Block) bool { return b.Pool == w.pool }) {
		return fmt.Errorf("there is no PodIPPool %s, nor a block of it%s", w.pool, alike(w.pool, slices.Collect(maps.Keys(c.poolOf))))
	}
	return nil
}

func phaseNames() []string {
	return []string{ipalloc.InService.String(), ipalloc.Draining.String(), ipalloc.CoolingDown.String()}
}

func blockTable(now time.Time, rows []blockRow) table {
	t := table{
		columns: columns("Block", "CIDR+", "Pool", "Node", "Phase", "Used", "Reason+", "Waits for", "Age"),
		empty:   "No blocks found.",
	}
	for i := range rows {
		r := &rows[i]
		phase := r.Phase
		if r.Conflict {
			phase += ",Conflict"
		}
		if r.Since != nil {
			phase += " " + age(now, *r.Since)
		}
		t.cells = append(t.cells, []any{
			r.Block, r.CIDR, r.Pool, r.Node, phase, fraction(r.Used, r.Addresses),
			dash(r.Reason), dash(r.WaitsFor), age(now, r.Created),
		})
	}
	return t
}
