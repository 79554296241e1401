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
		Short: "Show what an edit of pools would do; nothing is written",
		Long: `Shows what would happen if the PodIPPools in a file were applied: which nodes get
another pool, which blocks would be claimed and which would have to go, with how
many pods on them, which routes change, which nodes no pool would serve any more,
and which could not get what they need.

It asks the operator's own deciding code, on what the cluster shows now, for the
first step of each node: what must go, and what takes its place. Pods move at their
own pace after that. Blocks that would be reclaimed later, as they idle, are not in it.
The API server's own checks of the file are not made; kubectl apply --dry-run=server
makes them. Nothing is written.`,
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
