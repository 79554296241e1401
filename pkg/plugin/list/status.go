package list

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/check"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// Overview is the page that users look at first.
type Overview struct {
	Operator clusterread.Leader `json:"operator"`
	// Mode is the IPAM mode that agents run in, and ModeBy its source; empty: there is none, and
	// the mode is crd.
	Mode   string `json:"mode"`
	ModeBy string `json:"modeBy,omitempty"`
	// Version is the operator's version, and SettingsUnknown why its settings are unknown.
	Version         string `json:"version,omitempty"`
	SettingsUnknown string `json:"settingsUnknown,omitempty"`
	Agents          struct {
		Settled int `json:"settled"`
		All     int `json:"all"`
	} `json:"agents"`
	Pools []PoolRow `json:"pools"`
	// Nodes counts nodes, the addresses of their blocks that do not cool down, the ones in use, and
	// the addresses that nodes lack.
	Nodes struct {
		All   int `json:"all"`
		InUse int `json:"addressesInUse"`
		Has   int `json:"addresses"`
		Short int `json:"addressesShort"`
	} `json:"nodes"`
	Blocks PhaseCount `json:"blocks"`
	// Fullest are the nodes that need most of their addresses, as many as requested.
	Fullest []nodeRow `json:"fullestNodes,omitempty"`
	// Attention lists problems, the worst first. Never null.
	Attention []string `json:"attention"`
	Errors    int      `json:"checkErrors"`
	Warnings  int      `json:"checkWarnings"`
}

// NewStatus returns the command status.
func NewStatus(e *cli.Env) *cobra.Command {
	p := statusPages{Env: e, every: 5 * time.Second, output: cli.Output{Kind: "Status"}}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "The one page to look at first: the leader, how full pools are, problems",
		Long: `Shows on one page who leads, the number of agents that run steadily, how full each
pool is, and problems: nodes short of addresses, full or invalid pools, drains that
wait, and the number of findings in a first look of check.

The cluster moves while it is read: a finding may be gone at the next look.
kubectl cilium-pool check looks twice.

--watch at a terminal shows all nodes, in colour unless NO_COLOR is set, with keys: q
quits, s sorts, / filters by node or pool, arrows scroll, ? helps. Elsewhere it prints the
page again and again. It reads the whole cluster each time: in a large one, set a longer
--every.`,
		Example: cli.Examples("status", "status --watch --fullest 20", "status -o json | jq -r '.attention[]'"),
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.show(cmd.Context()) },
	}
	p.output.AddFlags(cmd)
	cmd.Flags().BoolVarP(&p.watch, "watch", "w", p.watch, "show the page again and again, until interrupted")
	cmd.Flags().DurationVar(&p.every, "every", p.every, "time between two reads of the cluster by --watch")
	cmd.Flags().IntVar(&p.nodes, "fullest", p.nodes, "also show this many nodes, the fullest ones")
	cmd.Flags().IntVar(&p.times, "times", p.times, "number of pages to show; 0: without end")
	_ = cmd.Flags().MarkHidden("times") // for scripts
	return cmd
}

// lowestEvery keeps --watch from reading the whole cluster without a pause.
const lowestEvery = 2 * time.Second

type statusPages struct {
	*cli.Env
	output       cli.Output
	watch        bool
	every        time.Duration
	nodes, times int
}

func (p *statusPages) show(ctx context.Context) error {
	if !p.watch {
		leads, err := p.page(ctx)
		if err == nil && !leads {
			return cli.Failed
		}
		return err
	}
	if !p.output.Readable() {
		return cli.Usagef("--watch goes with text alone, not with -o %s", p.output.Format)
	}
	if p.every < lowestEvery {
		return cli.Usagef("--every is %s: must be %s or more", p.every, lowestEvery)
	}
	if p.times == 0 && cli.IsTerminal(p.Raw.Out) && cli.IsTerminal(p.Raw.In) && os.Getenv("TERM") != "dumb" {
		return p.watchScreen(ctx)
	}
	for n := 1; ctx.Err() == nil; n++ {
		_, err := p.page(ctx)
		if n == p.times || err != nil && ctx.Err() == nil {
			return err
		}
		_ = p.Sleep(ctx, p.every) // an interrupt ends the loop
	}
	return nil
}

// page shows the page once, and reports whether an operator leads.
func (p *statusPages) page(ctx context.Context) (leads bool, err error) {
	c, err := p.Read(ctx)
	if err != nil {
		return false, err
	}
	v := ReadOverview(ctx, p.Env, c, p.nodes)
	return v.Operator.Problem == "", p.Describe(&p.output, v, func(s *cli.Text) {
		if p.watch {
			s.Line("Time      %s", c.Now.Format(time.TimeOnly))
		}
		v.Describe(s, &p.output, c.Now)
	})
}

// ReadOverview returns a summary of the cluster, with this many of the fullest nodes.
func ReadOverview(ctx context.Context, e *cli.Env, c *clusterview.Cluster, nodes int) *Overview {
	operator := c.Objects.Leader
	v := &Overview{Operator: operator, Mode: c.Objects.Mode.String(), ModeBy: c.Operator.ModeSource, Version: c.Operator.Settings.Version, SettingsUnknown: c.Operator.WhyNoSettings, Pools: PoolRows(c), Attention: []string{}}
	if operator.Problem != "" {
		v.attend("no operator leads: %s", operator.Problem)
	}
	if c.State.Recovery.Active() {
		v.attend("nothing changes: %s", c.State.PausedBecause(nil, nil))
	}
	for _, words := range c.Operator.OtherCRDs {
		v.attend("%s", words)
	}
	addRefused(ctx, e, c, v)
	waiting := addNodes(c, v)
	slices.SortStableFunc(v.Fullest, func(a, b nodeRow) int { return cmp.Compare(fullness(b), fullness(a)) })
	v.Fullest = v.Fullest[:min(nodes, len(v.Fullest))]
	addPools(v, waiting)
	for _, b := range BlockRows(c, BlockFilter{}) {
		if b.WaitsFor != "" && !b.Since.IsZero() {
			v.attend("block %s on %s drains since %s: it waits for %s", b.Block, b.Node, cli.Age(c.Now, b.Since), b.WaitsFor)
		}
	}
	report := audit.NewReport(c.Objects, 1, audit.Check(c.Objects, check.SettingsOf(c.Operator.Settings)))
	v.Errors = report.Errors
	v.Warnings = report.Warnings
	return v
}

func (v *Overview) attend(format string, args ...any) {
	v.Attention = append(v.Attention, fmt.Sprintf(format, args...))
}

// addRefused adds the objects about which the API server refuses the operator's writes.
func addRefused(ctx context.Context, e *cli.Env, c *clusterview.Cluster, v *Overview) {
	refused, err := c.ReadRefusedWrites(ctx)
	if err != nil {
		e.Warn(err.Error())
	}
	const most = 3
	for _, r := range refused[:min(len(refused), most)] {
		v.attend("%s %s, %s ago: %s", r.Kind, r.Name, cli.Age(c.Now, r.At), r.Note)
	}
	if rest := len(refused) - most; rest > 0 {
		v.attend("the API server refuses writes about %s more: kubectl get events -n default --field-selector reason=%s",
			suggest.Plural(rest, "object", "objects"), config.ReasonWriteRefused)
	}
}

// poolFamily is a family of a pool.
type poolFamily struct{ pool, family string }

// waits counts the nodes that a pool rules and where pods wait for a block, and the addresses that they wait for.
type waits struct{ nodes, addresses int }

func (w waits) with(addresses int) waits { return waits{w.nodes + 1, w.addresses + addresses} }

// addPools adds the pools with a problem, each in a line, also if pods of many nodes wait for a block of it.
func addPools(v *Overview, waiting map[poolFamily]waits) {
	for i := range v.Pools {
		p := &v.Pools[i]
		message := p.Message
		if w := waiting[poolFamily{p.Pool, p.Family}]; w.nodes > 0 {
			wait := "nodes wait"
			if w.nodes == 1 {
				wait = "node waits"
			}
			message = fmt.Sprintf("%d %s for %s; %s", w.nodes, wait, suggest.Plural(w.addresses, p.Family+" address", p.Family+" addresses"),
				cmp.Or(message, "no pool that serves them has a free block"))
		}
		if message != "" {
			v.attend("pool %s is %s: %s", p.Pool, strings.ToLower(p.State), message)
		}
	}
}

// addNodes adds the nodes, and returns the ones that wait for a block of a full pool.
func addNodes(c *clusterview.Cluster, v *Overview) map[poolFamily]waits {
	waiting := map[poolFamily]waits{}
	names := c.NodeNames()
	v.Nodes.All = len(names)
	for _, name := range names {
		if settled, _ := c.State.Agents.Settled(name, c.Now); settled {
			v.Agents.Settled++
		}
		for _, r := range nodeRows(c, name) {
			v.Fullest = append(v.Fullest, r)
			v.Nodes.InUse += r.Used
			v.Nodes.Has += r.Addresses
			v.Blocks.InService += r.Blocks.InService
			v.Blocks.Draining += r.Blocks.Draining
			v.Blocks.CoolingDown += r.Blocks.CoolingDown
			if r.State == "OtherIPAM" {
				continue // check counts them
			}
			v.Nodes.Short += r.Shortage
			switch {
			case r.Shortage > 0 && r.Pool != "" && r.lacksBlock:
				waiting[poolFamily{r.Pool, r.Family}] = waiting[poolFamily{r.Pool, r.Family}].with(r.Shortage)
			case r.Shortage > 0:
				v.attend("node %s is short by %s: %s", name, suggest.Plural(r.Shortage, "address", "addresses"),
					cmp.Or(state.ShortageOf(c.Nodes[name]), "kubectl cilium-pool explain "+name))
			case r.State == "NoPool":
				v.attend("node %s has no pool that serves it", name)
			case r.State == "NoCiliumNode":
				v.attend("node %s has no CiliumNode", name)
			case r.State == "NodeGone" && r.Blocks.Held() > r.Blocks.CoolingDown:
				v.attend("node %s is gone and holds %s", name, suggest.Count(r.Blocks.Held(), "block"))
			}
		}
	}
	v.Agents.All = len(c.Objects.Agents)
	if unsettled := v.Agents.All - v.Agents.Settled; unsettled > 0 {
		v.attend("%s not Ready for %s yet: no address is taken from their nodes", suggest.Plural(unsettled, "agent is", "agents are"), cli.Duration(c.Operator.Settings.AgentSettle))
	}
	return waiting
}

// Describe writes the page.
func (v *Overview) Describe(s *cli.Text, o *cli.Output, now time.Time) {
	if v.Operator.Problem != "" {
		s.Line("Operator  no operator is known to lead: %s", v.Operator.Problem)
	} else {
		s.Line("Operator  %s leads since %s, renewed %s ago", v.Operator.Name, cli.Age(now, v.Operator.Since), cli.Age(now, v.Operator.Renewed))
	}
	if v.ModeBy != "" {
		s.Line("Mode      %s, as %s says", v.Mode, v.ModeBy)
	}
	if v.Version != "" {
		s.Line("Version   %s", v.Version)
	}
	s.Line("Agents    %d of %d run steadily", v.Agents.Settled, v.Agents.All)
	short := ""
	if v.Nodes.Short > 0 {
		short = fmt.Sprintf("; short by %d", v.Nodes.Short)
	}
	s.Line("Nodes     %d, with %d of %s in use (%s)%s", v.Nodes.All, v.Nodes.InUse, suggest.Plural(v.Nodes.Has, "address", "addresses"), cli.Percent(v.Nodes.InUse, v.Nodes.Has), short)
	s.Line("Blocks    %d in service, %d draining, %d cooling down", v.Blocks.InService, v.Blocks.Draining, v.Blocks.CoolingDown)
	s.Line("Check     %s, %s at a first look", suggest.Count(v.Errors, "error"), suggest.Count(v.Warnings, "warning"))
	s.Line("")
	if len(v.Pools) > 0 {
		s.Table(o, poolTable(v.Pools, now))
	} else {
		s.Line("There is no pool yet: kubectl apply one (examples/pools.yaml).")
	}
	s.Line("")
	if len(v.Fullest) > 0 {
		s.Table(o, nodeTable(v.Fullest))
		s.Line("")
	}
	if len(v.Attention) == 0 {
		s.Line("No action needed.")
	} else {
		s.Line("Look at:")
		for _, a := range v.Attention {
			s.Line("  %s", a)
		}
	}
}

// fullness orders nodes: nodes that need addresses and have none come first.
func fullness(r nodeRow) float64 {
	if r.Capacity == 0 {
		return float64(r.Demand) * 1e6
	}
	return float64(r.Demand) / float64(r.Capacity)
}
