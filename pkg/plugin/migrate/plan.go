package migrate

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// migratePlan is the output of migrate plan.
type migratePlan struct {
	Nodes    []migrateNode   `json:"nodes"`
	Findings []adopt.Finding `json:"findings"`
}

// migrateNode is the plan for a node.
type migrateNode struct {
	Node     string         `json:"node"`
	From     adopt.Source   `json:"from"`
	Blocks   []migrateBlock `json:"blocks"`
	Withdraw []netip.Prefix `json:"withdraw,omitempty"`
	// Addresses is the number of addresses of its blocks that pods can have, InUse the number in
	// use.
	Addresses int `json:"addresses"`
	InUse     int `json:"inUse"`
	Findings  int `json:"findings"`
}

type migrateBlock struct {
	CIDR   netip.Prefix `json:"cidr"`
	Pool   string       `json:"pool"`
	Exists bool         `json:"exists"`
}

func newPlan(e *cli.Env) *cobra.Command {
	var o output.Flags
	var s choice
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show the blocks that nodes would get, and the obstacles, without a write",
		Long: `Shows the PodIPBlocks that would be made of the nodes' addresses: podCIDRs of
CiliumNodes or Nodes, allocations of multi-pool mode, or pools that people filled.

It names obstacles, such as two nodes with the same addresses or settings of Cilium,
and the fix of each. Fix blocking findings before migrate start; warnings do not block
it.

Exit codes: 0 no obstacle, 3 obstacles, 1 the cluster could not be read.`,
		Example: cli.Examples("migrate plan", "migrate plan -l zone=a", "migrate plan -o json | jq '.findings[]'"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := readMove(cmd.Context(), e, &s)
			if err != nil {
				return err
			}
			plan := adopt.Make(m.input())
			out := m.planRows(plan)
			if err := printPlan(e, &o, out); err != nil {
				return err
			}
			if plan.Blocked() {
				return output.NotReached
			}
			return nil
		},
	}
	o.AddFlags(cmd)
	s.addFlags(e, cmd)
	return cmd
}

func (m *move) planRows(plan adopt.Plan) migratePlan {
	out := migratePlan{Nodes: []migrateNode{}, Findings: append([]adopt.Finding{}, plan.Findings...)}
	for _, n := range plan.Nodes {
		row := migrateNode{Node: n.Name, From: n.From, Blocks: []migrateBlock{}, InUse: len(m.Users(n.Name))}
		for _, b := range n.Blocks {
			row.Blocks = append(row.Blocks, migrateBlock(b))
			if pool := m.Pools.Get(b.Pool); pool != nil {
				row.Addresses += pool.UsableCount(b.CIDR)
			}
		}
		row.Withdraw = crd.CIDRs(n.Withdraw)
		for _, f := range plan.Findings {
			if f.Node == n.Name {
				row.Findings++
			}
		}
		out.Nodes = append(out.Nodes, row)
	}
	return out
}

func printPlan(e *cli.Env, o *output.Flags, p migratePlan) error {
	t := output.Table{
		Columns: output.Columns("Node", "From", "Blocks", "Addresses", "In use", "Findings"),
		Empty:   "No nodes found.",
	}
	for _, n := range p.Nodes {
		t.Cells = append(t.Cells, []any{
			n.Node, output.Dash(string(n.From)), output.Dash(blockWords(n)), n.Addresses, n.InUse, n.Findings,
		})
	}
	if err := o.Print(e.Out, e.ErrOut, p, t); err != nil || !o.Readable() {
		return err
	}
	for _, f := range p.Findings {
		fmt.Fprintln(e.Out, f)
	}
	return nil
}

// blockWords returns a node's blocks, at most three by name.
func blockWords(n migrateNode) string {
	const most = 3
	words := ""
	for i, b := range n.Blocks {
		switch {
		case i == most:
			return fmt.Sprintf("%s,+%d", words, len(n.Blocks)-most)
		case i > 0:
			words += ","
		}
		words += b.CIDR.String()
	}
	return words
}
