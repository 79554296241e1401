package plugin

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// nodeRow is one family of a node, for users and scripts.
type nodeRow struct {
	Node   string `json:"node"`
	Family string `json:"family"`
	// CiliumPool is the pool of Cilium's it is about; empty: the default one.
	CiliumPool string `json:"ciliumPool,omitempty"`
	// Pool is the pool that rules the node; empty: none serves it.
	Pool   string     `json:"pool"`
	Blocks phaseCount `json:"blocks"`
	// Demand is how many addresses the node needs now, Capacity how many it has.
	Demand   int `json:"demand"`
	Capacity int `json:"capacity"`
	// Shortage is by how much its limits keep it from what it needs.
	Shortage int `json:"shortage"`
	// Reclaimable is how many blocks it could do without now.
	Reclaimable int    `json:"reclaimable"`
	Paused      string `json:"paused,omitempty"`
	// AgentSettled: its agent has been Ready for as long as --agent-settle-time.
	AgentSettled bool `json:"agentSettled"`
	// State sums that up in a word or two.
	State string `json:"state"`
}

// phaseCount counts blocks.
type phaseCount struct {
	InService   int `json:"inService"`
	Draining    int `json:"draining"`
	CoolingDown int `json:"coolingDown"`
}

func (p *phaseCount) add(phase ipalloc.Phase) {
	switch phase {
	case ipalloc.Draining:
		p.Draining++
	case ipalloc.CoolingDown:
		p.CoolingDown++
	default:
		p.InService++
	}
}

func (p phaseCount) held() int { return p.InService + p.Draining + p.CoolingDown }

func nodesCommand(e *env) *cobra.Command {
	var o output
	selector := ""
	cmd := &cobra.Command{
		Use:   "nodes [NODE...]",
		Short: "List nodes: their pool, blocks, what they need and what they have",
		Long: `Lists nodes, a line per address family: the pool that rules the node, its blocks,
how many addresses it needs, and how many it has. What a node needs is what its
agent reports as used, and bound pods that have no address yet.`,
		Example:           examples("nodes", "nodes edge-01 edge-02 -o wide", "nodes -o json | jq '.[] | select(.state != \"OK\")'"),
		ValidArgsFunction: e.completeNodes,
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
				rows, err := pickedNodes(c, args, picked)
				names := namesOf("node/", rows, func(r nodeRow) string { return r.Node })
				return listed{rows: rows, names: names, table: nodeTable(rows)}, err
			})
		},
	}
	addSelector(cmd, &selector, "Nodes")
	o.addListFlags(cmd)
	return cmd
}

// pickedNodes are the rows of nodes by name, or of those with labels.
func pickedNodes(c *cluster, names []string, picked labels.Selector) ([]nodeRow, error) {
	if len(names) == 0 {
		names = c.nodeNames()
	}
	rows := []nodeRow{}
	for _, name := range names {
		if err := c.knows(name); err != nil {
			return nil, err
		}
		if node := c.nodes[name]; picked.Empty() || node != nil && picked.Matches(labels.Set(node.Labels)) {
			rows = append(rows, nodeRows(c, name)...)
		}
	}
	return rows, nil
}

// knows fails for a name that is no node's.
func (c *cluster) knows(name string) error {
	if c.nodes[name] == nil && c.views[name] == nil && len(c.Ledger.NodeBlocks(name)) == 0 {
		return fmt.Errorf("there is neither a Node nor a CiliumNode %s, and it holds no block%s", name, alike(name, c.nodeNames()))
	}
	return nil
}

// nodeRows are a row per family, or one that says why there is none.
func nodeRows(c *cluster, name string) []nodeRow {
	var rows []nodeRow
	for _, d := range c.decide(name) {
		row := nodeRow{
			Node: name, Family: d.Family.String(), CiliumPool: d.CiliumPool, Pool: d.Ruling(),
			Demand: d.plan.Demand, Capacity: d.plan.Capacity, Shortage: d.plan.Shortage,
			Reclaimable: len(d.memory.IdleSince), Paused: d.Paused, AgentSettled: d.State.AgentSettled,
		}
		for _, b := range d.State.Blocks {
			row.Blocks.add(b.Phase)
		}
		row.State = nodeState(c, name, &row)
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		settled, _ := c.Agents.Settled(name, c.now)
		rows = append(rows, nodeRow{Node: name, AgentSettled: settled, State: "NoPool"})
	}
	return rows
}

// nodeState returns the worst state of a node.
func nodeState(c *cluster, name string, r *nodeRow) string {
	switch {
	case c.nodes[name] == nil:
		return "NodeGone"
	case c.views[name] == nil:
		return "NoCiliumNode"
	case c.elsewhere(name):
		return "OtherIPAM"
	case r.Demand > r.Capacity:
		return fmt.Sprintf("Short by %d", r.Demand-r.Capacity)
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

func nodeTable(rows []nodeRow) table {
	t := table{
		columns: columns("Node", "Family", "Pool", "Blocks", "Draining+", "Resting+", "Needs", "Has", "Used", "Spare blocks+", "State"),
		empty:   "No nodes found.",
	}
	for _, r := range rows {
		t.cells = append(t.cells, []any{
			r.Node, dash(aboutWords(r.Family, r.CiliumPool)), dash(r.Pool), fmt.Sprint(r.Blocks.held()), fmt.Sprint(r.Blocks.Draining),
			fmt.Sprint(r.Blocks.CoolingDown), fmt.Sprint(r.Demand), fmt.Sprint(r.Capacity),
			percent(r.Demand, r.Capacity), fmt.Sprint(r.Reclaimable), r.State,
		})
	}
	return t
}

// aboutWords are a family, and a pool of Cilium's if it is not the default one.
func aboutWords(family, ciliumPool string) string {
	if ciliumPool == "" {
		return family
	}
	return family + " " + ciliumPool
}
