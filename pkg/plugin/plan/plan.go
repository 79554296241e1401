// Package plan is kubectl cilium-pool plan.
package plan

import (
	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// New returns the command plan.
func New(e *cli.Env) *cobra.Command {
	var o output.Flags
	file, remove := "", []string{}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show the effects of an edit of pools, without a write",
		Long: `Shows the effects of applying the PodIPPools in a file: nodes that get another pool,
blocks that would be claimed and blocks that would go, with the number of pods on them,
changed routes, nodes that no pool would serve any more, and nodes that could not get
the addresses they need.

It asks the operator's own deciding code, on the cluster as it is now, for the first
step of each node: the blocks that must go, and their replacements. Blocks that would
be reclaimed later, as they idle, are not in it. The API server's own checks of the file
are not made; kubectl apply --dry-run=server makes them.`,
		Example: cli.Examples("plan -f pools.yaml", "plan --delete old-pool", "plan -f - < pools.yaml"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			edits, err := readPools(e, file)
			if err != nil {
				return err
			}
			if len(edits)+len(remove) == 0 {
				return output.Usagef("nothing to plan: give -f FILE or --delete POOL")
			}
			before, err := e.Read(cmd.Context())
			if err != nil {
				return err
			}
			after, err := edited(before, edits, remove)
			if err != nil {
				return err
			}
			effect := effectOf(before, after)
			return e.Print(&o, effect, effect.describe)
		},
	}
	o.AddFlags(cmd)
	cmd.Flags().StringVarP(&file, "filename", "f", file, "file with PodIPPools; -: standard input")
	cmd.Flags().StringSliceVar(&remove, "delete", remove, "pools that would be deleted")
	_ = cmd.RegisterFlagCompletionFunc("delete", e.CompletePools)
	return cmd
}
