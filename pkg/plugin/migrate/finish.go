package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/retry"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/exit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

func newFinish(e *cli.Env) *cobra.Command {
	var s choice
	dryRun, settle := false, controller.DefaultSettings().AgentSettle
	cmd := &cobra.Command{
		Use:   "finish",
		Short: "End a move whose nodes have all settled; after it there is no way back",
		Long: `Ends a move: sees that all these nodes have settled and that their agents will start
in crd mode again, empties what multi-pool mode left in spec.ipam.pools, and takes the
labels off the blocks that say where they came from. They live on like any other.
After it, migrate abort does nothing.

Exit codes: 0 it is finished, 3 something is yet to be done and nothing was written,
1 it failed; run it again.`,
		Example: cli.Examples("migrate finish --dry-run", "migrate finish", "migrate finish -l zone=a"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := readMove(cmd.Context(), e, &s)
			if err != nil {
				return err
			}
			reasons := m.unfinished(settle)
			if len(reasons) > 0 {
				for _, r := range reasons {
					fmt.Fprintln(e.ErrOut, r)
				}
				fmt.Fprintln(e.ErrOut, "nothing was written")
				return exit.NotReached
			}
			return m.finish(cmd.Context(), dryRun)
		},
	}
	s.addFlags(e, cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", dryRun, "say what would be written, and write nothing")
	cmd.Flags().DurationVar(&settle, "settle-time", settle, "how long an agent must have been Ready, and pods have run to be expected in its report")
	return cmd
}

// unfinished returns what remains to be done.
func (m *move) unfinished(settle time.Duration) []string {
	var out []string
	for _, r := range m.rows(settle) {
		switch {
		case !r.Step.Reached(adopt.Settled):
			out = append(out, fmt.Sprintf("node %s is %s: %s", r.Node, r.Step, r.Next))
		case r.Step == adopt.Settled && r.Mode != "" && r.Mode != string(adopt.CRD):
			out = append(out, fmt.Sprintf("node %s: its agent would start in %s mode: set ipam=crd in cilium-config, or in the CiliumNodeConfig that is for it", r.Node, r.Mode))
		}
	}
	return out
}

func (m *move) finish(ctx context.Context, dryRun bool) error {
	done := map[bool]string{false: "finished", true: "would be finished"}[dryRun]
	finished := 0
	for _, name := range m.names() {
		var blocks []crd.Block
		for _, b := range m.Ledger.NodeBlocks(name) {
			if b.AdoptedFrom != "" {
				blocks = append(blocks, b)
			}
		}
		if len(blocks) == 0 {
			continue
		}
		finished++
		if !dryRun {
			// The labels last: they mark this as unfinished.
			if err := m.dropPools(ctx, name); err != nil {
				return err
			}
			for _, b := range blocks {
				if err := m.unlabel(ctx, b); err != nil {
					return err
				}
			}
		}
		fmt.Fprintf(m.env.Out, "node/%s %s (%s)\n", name, done, output.Count(len(blocks), "block"))
	}
	if finished == 0 {
		fmt.Fprintln(m.env.ErrOut, "nothing to finish")
	}
	return nil
}

// dropPools removes what multi-pool mode left in the CiliumNode of an agent that runs in crd
// mode.
func (m *move) dropPools(ctx context.Context, node string) error {
	nodes := m.ciliumNodes()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := nodes.Live(ctx, node)
		if err != nil || live == nil {
			return err
		}
		if len(live.Used) == 0 {
			return errors.New("the agent of node " + node + " reports nothing any more: see that it runs in crd mode")
		}
		_, err = nodes.DropPools(ctx, live)
		return err
	})
}

func (m *move) unlabel(ctx context.Context, b crd.Block) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		there, err := m.stillThere(ctx, b)
		if err != nil || there == nil {
			return err
		}
		return m.label(ctx, there, "")
	})
}
