package migrate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/retry"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

func newFinish(e *cli.Env) *cobra.Command {
	var s choice
	dryRun, settle := false, config.DefaultSettings().AgentSettle
	cmd := &cobra.Command{
		Use:   "finish",
		Short: "End a move: remove the old mode's leftovers; after it there is no way back",
		Long: `Verifies that the agents of these nodes run steadily in the new mode, reported their
addresses or requests there, and will start in it again (cilium-config,
CiliumNodeConfigs); then removes the leftovers of the old mode from their CiliumNodes.
While these are there, the operator assigns blocks that they name to no other node:

  in crd mode         spec.ipam.pools, and the labels of blocks that name their source.
                      After it, migrate abort has no effect
  in multi-pool mode  addresses in spec.ipam.pool, podCIDRs, and the agent's report in
                      status.ipam, but only CIDRs and addresses that lie in a block or
                      a PodIPPool

It writes only once every node that came from another IPAM has settled. A node that
moved between two modes of this operator (docs/modes.md) waits for itself alone.

Exit codes: 0 it is finished, 3 a node is not ready: the output says why, 1 it failed;
run it again.`,
		Example: cli.Examples("migrate finish --dry-run", "migrate finish", "migrate finish -l zone=a"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := readMove(cmd.Context(), e, &s)
			if err != nil {
				return err
			}
			if reasons := m.unfinished(settle); len(reasons) > 0 {
				for _, r := range reasons {
					fmt.Fprintln(e.ErrOut, r)
				}
				fmt.Fprintln(e.ErrOut, "nothing was written")
				return output.NotReached
			}
			return m.finish(cmd.Context(), settle, dryRun)
		},
	}
	s.addFlags(e, cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", dryRun, "print the changes, without a write")
	cmd.Flags().DurationVar(&settle, "settle-time", settle, "time that an agent must have been Ready, and that pods must have run to be expected in its report")
	return cmd
}

// unfinished returns the remaining work.
func (m *move) unfinished(settle time.Duration) []string {
	var out []string
	for _, r := range m.rows(settle) {
		switch {
		case m.finishing(r.Node, settle).betweenModes():
		case !r.Step.Reached(adopt.Settled):
			out = append(out, fmt.Sprintf("node %s is %s: %s", r.Node, r.Step, r.Next))
		case r.Step == adopt.Settled && r.Mode != "" && r.Mode != string(adopt.CRD):
			out = append(out, fmt.Sprintf("node %s: its agent would start in %s mode: set ipam=crd in cilium-config, or in the CiliumNodeConfig that is for it", r.Node, r.Mode))
		}
	}
	return out
}

func (m *move) finish(ctx context.Context, settle time.Duration, dryRun bool) error {
	done := map[bool]string{false: "finished", true: "would be finished"}[dryRun]
	code, idle := error(nil), true
	for _, name := range m.names() {
		f := m.finishing(name, settle)
		if len(f.adopted) == 0 && f.left(m.Ledger.CiliumNode(name)) == "" {
			continue
		}
		idle = false
		var left, refused string
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
			left, refused, err = f.once(ctx, dryRun)
			return err
		})
		if err != nil {
			return err
		}
		if refused != "" {
			fmt.Fprintf(m.env.ErrOut, "node/%s stays as it is: %s\n", name, refused)
			code = output.NotReached
			continue
		}
		// The labels last: they mark this as unfinished.
		for _, b := range f.adopted {
			if !dryRun {
				if err := m.unlabel(ctx, b); err != nil {
					return err
				}
			}
		}
		var parts []string
		if len(f.adopted) > 0 {
			parts = append(parts, output.Count(len(f.adopted), "block"))
		}
		if left != "" {
			parts = append(parts, "removed: "+left)
		}
		fmt.Fprintf(m.env.Out, "node/%s %s (%s)\n", name, done, strings.Join(parts, "; "))
	}
	if idle {
		fmt.Fprintln(m.env.ErrOut, "nothing to finish")
	}
	return code
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
