package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

type migrateRow struct {
	Node string       `json:"node"`
	From adopt.Source `json:"from"`
	Step adopt.Step   `json:"step"`
	// Blocks are the blocks it holds, Given the CIDRs assigned to it.
	Blocks int `json:"blocks"`
	Given  int `json:"given"`
	// Addresses is the number of its pool's addresses, InUse the number in use by any account, and
	// Unreported the number of pods' addresses that its agent does not report.
	Addresses  int `json:"addresses"`
	InUse      int `json:"inUse"`
	Unreported int `json:"unreported"`
	// Mode is the IPAM mode of its agent's next start.
	Mode string `json:"mode"`
	// Difference is the operator's next step there; "-": none.
	Difference string `json:"difference"`
	// Next is the next step; "": none.
	Next string `json:"next"`
}

func newStatus(e *cli.Env) *cobra.Command {
	o := cli.Output{Kind: "MigrationList", Named: corev1.SchemeGroupVersion.WithKind("Node")}
	var s choice
	target := ""
	timeout := time.Duration(0)
	settle := config.DefaultSettings().AgentSettle
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show each node's progress and next step",
		Long: `Shows for each node which step it has reached:

  old        its addresses are in no block yet
  adopted    blocks cover them; they are not all in spec.ipam.pool, or in
             spec.ipam.pools.allocated in multi-pool mode
  published  they are; its agent reads none of them yet
  moved      its agent has reported in the new mode: addresses in use, or requests
  settled    it has been Ready for --settle-time, and in crd mode reports the address of
             every pod that has run for as long
  finished   migrate finish was run; or it never had another IPAM
  returning  migrate abort was run, and its agent has yet to restart

Difference is the operator's next step there: adopt CIDRs, claim another block, drain
or free some. It does not include the operator's memory.

With --until it waits until all these nodes have reached that step.`,
		Example: cli.Examples("migrate status", "migrate status --node edge-01 --until settled --timeout 5m", "migrate status -o json | jq '.items[] | select(.step != \"settled\")'"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if target != "" && !slices.Contains(adopt.Steps(), adopt.Step(target)) {
				return cli.Usagef("--until is %s: must be old, adopted, published, moved, settled or finished", target)
			}
			rows, err := awaitStep(cmd.Context(), e, &s, adopt.Step(target), settle, timeout)
			if err != nil {
				return err
			}
			if err := e.Print(&o, rows, migrateTable(rows)); err != nil {
				return err
			}
			if target != "" && !reached(rows, adopt.Step(target)) {
				return cli.NotReached
			}
			return nil
		},
	}
	o.AddFlags(cmd)
	s.addFlags(e, cmd, false)
	cmd.Flags().StringVar(&target, "until", target, "wait for this step; empty: do not wait")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "time to wait; 0: without end")
	cmd.Flags().DurationVar(&settle, "settle-time", settle, "time that an agent must have been Ready, and that pods must have run to be expected in its report")
	return cmd
}

// awaitStep reads the cluster until all nodes have come this far, or time is up.
func awaitStep(ctx context.Context, e *cli.Env, s *choice, until adopt.Step, settle, timeout time.Duration) ([]migrateRow, error) {
	end := e.TimeNow().Add(timeout)
	for {
		m, err := readMigration(ctx, e, s)
		if err != nil {
			return nil, err
		}
		rows := m.rows(settle)
		if until == "" || reached(rows, until) || timeout > 0 && !e.TimeNow().Before(end) {
			return rows, nil
		}
		if err := e.Sleep(ctx, 2*time.Second); err != nil {
			return nil, err
		}
	}
}

func reached(rows []migrateRow, step adopt.Step) bool {
	return !slices.ContainsFunc(rows, func(r migrateRow) bool { return !r.Step.Reached(step) })
}

func (m *migration) rows(settle time.Duration) []migrateRow {
	rows := []migrateRow{}
	for _, name := range m.names() {
		s := m.progressOf(name, settle)
		r := migrateRow{
			Node: name, From: s.From, Step: s.Step(), Blocks: len(s.Blocks), Given: len(s.AssignedCIDRs),
			Addresses: len(s.Published), InUse: len(s.Used), Unreported: s.Unreported,
			Mode: m.config.Mode(m.cluster.Nodes[name].Labels), Difference: m.operatorSteps(name, &s),
		}
		r.Next = m.userStep(&s, r.Mode)
		rows = append(rows, r)
	}
	return rows
}

func (m *migration) userStep(s *adopt.Progress, mode string) string {
	switch s.Step() {
	case adopt.Old:
		return "migrate start --node " + s.Name
	case adopt.Adopted:
		if s.Paused != "" {
			return "end the pause: " + s.Paused
		}
		return "the operator publishes: let it run without --shadow"
	case adopt.Published:
		if mode != "" && mode != m.newMode.String() {
			return fmt.Sprintf("set ipam=%s for its agent, which would start with %s", m.newMode, mode)
		}
		return "restart its agent"
	case adopt.Moved:
		return "wait for " + strings.Join(waitsToSettle(s), ", and for ")
	case adopt.Settled:
		return "migrate finish"
	case adopt.Returning:
		return fmt.Sprintf("restart its agent in %s mode, then migrate abort --node %s", s.Back, s.Name)
	}
	return ""
}

// waitsToSettle returns the reasons why a node that has moved waits.
func waitsToSettle(s *adopt.Progress) []string {
	var waits []string
	if !s.Settled {
		waits = append(waits, "its agent to be Ready for a while")
	}
	if s.Unreported > 0 {
		waits = append(waits, fmt.Sprintf("its agent to report %s of pods", suggest.Plural(s.Unreported, "address", "addresses")))
	}
	return waits
}

func migrateTable(rows []migrateRow) cli.Table {
	return cli.TableOf("nodes", rows, func(r *migrateRow) []any {
		return []any{
			r.Node, cli.Dash(string(r.From)), string(r.Step), r.Blocks, r.Given, r.Addresses,
			r.InUse, r.Unreported, cli.Dash(r.Mode), r.Difference, cli.Dash(r.Next),
		}
	}, "Node", "From", "Step", "Blocks", "Given+", "Addresses", "In use", "Unreported+", "Mode+", "Difference", "Next")
}
