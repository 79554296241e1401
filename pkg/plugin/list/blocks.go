package list

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// BlockRow is a block, for users and scripts.
type BlockRow struct {
	Block  string       `json:"block"`
	CIDR   netip.Prefix `json:"cidr"`
	Family string       `json:"family"`
	Pool   string       `json:"pool"`
	Node   string       `json:"node"`
	// KeptFor is the owner of its address, as NAMESPACE/POD or NAMESPACE/KEY=VALUE; empty: it is for any pod.
	KeptFor string `json:"keptFor,omitempty"`
	// Phase is InService, Draining or CoolingDown.
	Phase  string    `json:"phase"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Addresses is the number of addresses that pods can have, Used the number of the block's in
	// use.
	Addresses int `json:"addresses"`
	Used      int `json:"used"`
	// WaitsFor is the obstacle to a leaving block.
	WaitsFor string `json:"waitsFor,omitempty"`
	// NeedsAction is the user action, if the wait does not end on its own.
	NeedsAction string `json:"needsAction,omitempty"`
	// NeedsRestart: it is a restart of the node's agent.
	NeedsRestart bool      `json:"-"`
	Conflict     bool      `json:"conflict,omitempty"`
	Created      time.Time `json:"created"`
	// Users are its addresses in use, sorted.
	Users []User `json:"users,omitempty"`
}

// User is who uses an address: a pod as namespace/name, or the agent itself.
type User struct {
	IP   netip.Addr `json:"ip"`
	Name string     `json:"name"`
}

// BlockFilter selects blocks; empty fields select all.
type BlockFilter struct {
	Pool  string
	nodes []string
	phase string
}

func newBlocks(e *cli.Env) *cobra.Command {
	o := cli.Output{Kind: "BlockList", Named: v1alpha1.GroupVersion.WithKind("PodIPBlock")}
	var filter BlockFilter
	cmd := &cobra.Command{
		Use:     "blocks",
		Aliases: []string{"block"},
		Short:   "List blocks: their nodes, how full they are, why they wait",
		Long: `Lists PodIPBlocks: the number of addresses of each that are in use, and the reason why
a block on its way out waits.`,
		Example: cli.Examples("get blocks", "get blocks --node edge-01 -o wide", "get blocks --phase Draining", "get blocks --pool zone-a -o json | jq '.items[] | select(.used == 0)'"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.phase != "" && !slices.Contains(phaseNames(), filter.phase) {
				return cli.Usagef("--phase is %s: must be %s", filter.phase, suggest.OneOf(phaseNames()))
			}
			c, err := e.Read(cmd.Context())
			if err != nil {
				return err
			}
			if err := checkFilter(c, filter); err != nil {
				return err
			}
			rows := BlockRows(c, filter)
			return e.Print(&o, rows, blockTable(c.Now, rows))
		},
	}
	o.AddFlags(cmd)
	cmd.Flags().StringVar(&filter.Pool, "pool", "", "only blocks of this pool")
	cmd.Flags().StringSliceVar(&filter.nodes, "node", nil, "only blocks of these nodes; may be repeated")
	cmd.Flags().StringVar(&filter.phase, "phase", "", "only blocks in this phase: InService, Draining or CoolingDown")
	cli.CompleteFlag(cmd, "phase", phaseNames()...)
	_ = cmd.RegisterFlagCompletionFunc("pool", e.CompletePools)
	_ = cmd.RegisterFlagCompletionFunc("node", e.CompleteNodes)
	return cmd
}

// BlockRows returns the blocks that a filter selects, sorted by address.
func BlockRows(c *clusterview.Cluster, filter BlockFilter) []BlockRow {
	rows := []BlockRow{}
	for _, node := range c.NodeNames() {
		if len(filter.nodes) > 0 && !slices.Contains(filter.nodes, node) {
			continue
		}
		users := c.Users(node)
		for _, b := range c.State.Ledger.NodeBlocks(node) {
			advice := c.Advise(b, users)
			inBlock := usersIn(b.CIDR, users)
			row := BlockRow{
				Block: b.Name, CIDR: b.CIDR, Family: ipalloc.FamilyOf(b.CIDR.Addr()).String(), Pool: b.Pool, Node: b.Node, KeptFor: crd.OwnerOfPool(b.CiliumPool),
				Phase: b.Phase.String(), Reason: string(b.Reason), Since: b.Since, Conflict: b.Conflict,
				Addresses: c.UsableCount(b), Used: len(inBlock), Users: inBlock, WaitsFor: advice.Obstacle, NeedsAction: advice.Action, NeedsRestart: advice.Restart, Created: b.Created,
			}
			if (filter.Pool == "" || filter.Pool == b.Pool) && (filter.phase == "" || filter.phase == row.Phase) {
				rows = append(rows, row)
			}
		}
	}
	slices.SortFunc(rows, func(a, b BlockRow) int { return a.CIDR.Compare(b.CIDR) })
	return rows
}

func usersIn(cidr netip.Prefix, users map[netip.Addr]string) []User {
	var inCIDR []User
	for addr, name := range users {
		if cidr.Contains(addr) {
			inCIDR = append(inCIDR, User{IP: addr, Name: name})
		}
	}
	slices.SortFunc(inCIDR, func(a, b User) int { return a.IP.Compare(b.IP) })
	return inCIDR
}

// checkFilter fails if no pool or no node has the requested name.
func checkFilter(c *clusterview.Cluster, filter BlockFilter) error {
	for _, node := range filter.nodes {
		if err := c.CheckNode(node); err != nil {
			return err
		}
	}
	if filter.Pool != "" && c.PodIPPools[filter.Pool] == nil && !slices.ContainsFunc(c.Blocks(), func(b crd.Block) bool { return b.Pool == filter.Pool }) {
		return fmt.Errorf("there is no PodIPPool %s, nor a block of it%s", filter.Pool, suggest.DidYouMean(filter.Pool, slices.Collect(maps.Keys(c.PodIPPools))))
	}
	return nil
}

func phaseNames() []string {
	return []string{ipalloc.InService.String(), ipalloc.Draining.String(), ipalloc.CoolingDown.String()}
}

func blockTable(now time.Time, rows []BlockRow) cli.Table {
	return cli.TableOf("blocks", rows, func(r *BlockRow) []any {
		phase := r.Phase
		if r.Conflict {
			phase += ",Conflict"
		}
		if !r.Since.IsZero() {
			phase += " " + cli.Age(now, r.Since)
		}
		return []any{
			r.Block, r.CIDR, r.Pool, r.Node, phase, cli.Fraction(r.Used, r.Addresses),
			cli.Dash(r.Reason), cli.Dash(r.WaitsFor), cli.Age(now, r.Created),
		}
	}, "Block", "CIDR+", "Pool", "Node", "Phase", "Used", "Reason+", "Waits for", "Age")
}
