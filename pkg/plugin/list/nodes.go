package list

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// nodeRow is one family of a node, for users and scripts.
type nodeRow struct {
	Node   string `json:"node"`
	Family string `json:"family"`
	// CiliumPool is the Cilium pool it is about; empty: the default one.
	CiliumPool string `json:"ciliumPool,omitempty"`
	// Pool is the pool that rules the node; empty: none serves it.
	Pool   string     `json:"pool"`
	Blocks PhaseCount `json:"blocks"`
	// Demand is the number of addresses the node needs now, Capacity the number it has.
	Demand   int `json:"demand"`
	Capacity int `json:"capacity"`
	// Addresses is the number of addresses that pods can have of its blocks that do not cool down,
	// Used the number of them in use.
	Addresses int `json:"addresses"`
	Used      int `json:"used"`
	// Shortage is the number of addresses that its pods wait for and that it has not got.
	Shortage int `json:"shortage"`
	// Reclaimable is the number of blocks it does not need now.
	Reclaimable int    `json:"reclaimable"`
	Paused      string `json:"paused,omitempty"`
	// AgentSettled: its agent has been Ready for as long as --agent-settle-time.
	AgentSettled bool `json:"agentSettled"`
	// State sums this up in a word or two.
	State string `json:"state"`

	// lacksBlock: it needs a block, and none of its pools has a free one.
	lacksBlock bool
}

// PhaseCount counts blocks.
type PhaseCount struct {
	InService   int `json:"inService"`
	Draining    int `json:"draining"`
	CoolingDown int `json:"coolingDown"`
}

// Add counts a block in a phase.
func (p *PhaseCount) Add(phase string) {
	switch phase {
	case ipalloc.Draining.String():
		p.Draining++
	case ipalloc.CoolingDown.String():
		p.CoolingDown++
	default:
		p.InService++
	}
}

// Held returns the number of all blocks.
func (p PhaseCount) Held() int { return p.InService + p.Draining + p.CoolingDown }

func newNodes(e *cli.Env) *cobra.Command {
	o := cli.Output{Kind: "NodeList", Named: corev1.SchemeGroupVersion.WithKind("Node")}
	selector := ""
	cmd := &cobra.Command{
		Use:     "nodes [NODE...]",
		Aliases: []string{"node"},
		Short:   "List nodes: their pool, blocks, needed and present addresses",
		Long: `Lists nodes, a line per address family: the pool that rules the node, its blocks,
and the numbers of addresses it needs and has. A node needs the addresses that its
agent reports as used, and one for each bound pod that has no address yet. Used is
the number of addresses of its blocks that are in use.`,
		Example:           cli.Examples("get nodes", "get nodes edge-01 edge-02 -o wide", "get nodes -o json | jq '.items[] | select(.state != \"OK\")'"),
		ValidArgsFunction: e.CompleteNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if selector != "" && len(args) > 0 {
				return cli.Usagef("--selector goes without names, and %s is given", args[0])
			}
			picked, err := labels.Parse(selector)
			if err != nil {
				return cli.Usagef("--selector is %s: %w", selector, err)
			}
			c, err := e.Read(cmd.Context())
			if err != nil {
				return err
			}
			rows, err := pickedNodes(c, args, picked)
			if err != nil {
				return err
			}
			return e.Print(&o, rows, nodeTable(rows))
		},
	}
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "only Nodes with these labels, as in zone=a,!storage; not with names")
	o.AddFlags(cmd)
	return cmd
}

func pickedNodes(c *clusterview.Cluster, names []string, picked labels.Selector) ([]nodeRow, error) {
	if len(names) == 0 {
		names = c.NodeNames()
	}
	rows := []nodeRow{}
	for _, name := range names {
		if err := c.CheckNode(name); err != nil {
			return nil, err
		}
		if node := c.Nodes[name]; picked.Empty() || node != nil && picked.Matches(labels.Set(node.Labels)) {
			rows = append(rows, nodeRows(c, name)...)
		}
	}
	return rows, nil
}

// nodeRows returns a row per family, or a row that explains their absence.
func nodeRows(c *clusterview.Cluster, name string) []nodeRow {
	var rows []nodeRow
	users := c.Users(name)
	for _, d := range c.Decide(name) {
		plan, balance := d.Balance(d.At)
		row := nodeRow{
			lacksBlock: d.LacksBlock(c.State.Ledger, plan),
			Node:       name, Family: d.Family.String(), CiliumPool: d.CiliumPool, Pool: d.Ruling(),
			Demand: d.Plan.Demand, Capacity: d.Plan.Capacity, Shortage: balance.Missing,
			Reclaimable: len(d.Memory.IdleSince), Paused: d.Standing.Because(), AgentSettled: d.State.AgentSettled,
		}
		for _, b := range d.State.Blocks {
			row.Blocks.Add(b.Phase.String())
			if block, ok := c.State.Ledger.Block(b.CIDR); ok && b.Phase != ipalloc.CoolingDown {
				row.Addresses += c.UsableCount(block)
				row.Used += clusterview.CountIn(b.CIDR, users)
			}
		}
		row.State = nodeState(c, &d, &row)
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		settled, _ := c.State.Agents.Settled(name, c.Now)
		rows = append(rows, nodeRow{Node: name, AgentSettled: settled, State: "NoPool"})
	}
	return rows
}

func nodeState(c *clusterview.Cluster, d *clusterview.Decision, r *nodeRow) string {
	switch {
	case c.CannotRead("Nodes"):
		return "NodeUnread"
	case c.Nodes[r.Node] == nil:
		return "NodeGone"
	case c.State.Ledger.CiliumNode(r.Node) == nil:
		return "NoCiliumNode"
	case d.Standing.Kind == state.OtherIPAM:
		return "OtherIPAM"
	case r.Shortage > 0:
		return fmt.Sprintf("Short by %d", r.Shortage)
	case r.Paused != "":
		return "Paused"
	case r.Pool == "":
		return "NoPool"
	case !r.AgentSettled:
		return "AgentNotReady"
	case r.Blocks.Draining > 0:
		return "Draining"
	}
	return "OK"
}

func nodeTable(rows []nodeRow) cli.Table {
	return cli.TableOf("nodes", rows, func(r *nodeRow) []any {
		return []any{
			r.Node, cli.Dash(FamilyWords(r.Family, r.CiliumPool)), cli.Dash(r.Pool), r.Blocks.Held(), r.Blocks.Draining,
			r.Blocks.CoolingDown, r.Demand, r.Capacity, cli.Fraction(r.Used, r.Addresses), r.Reclaimable, r.State,
		}
	}, "Node", "Family", "Pool", "Blocks", "Draining+", "Cooling Down+", "Needs", "Has", "Used", "Spare blocks+", "State")
}

// FamilyWords returns a family, followed by its Cilium pool unless that is the default one, or by the owner that the pool
// is for.
func FamilyWords(family, ciliumPool string) string {
	if ciliumPool == "" {
		return family
	}
	return family + " " + cmp.Or(crd.OwnerOfPool(ciliumPool), ciliumPool)
}
