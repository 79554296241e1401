package plugin

import (
	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/check"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

func checkCommand(e *cli.Env) *cobra.Command {
	o := check.NewOptions()
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Audit the cluster: do two nodes or pods have the same address?",
		Long: `Audits the cluster: do two nodes or pods have the same address, can agents
restore every address in use, do blocks, CiliumNodes and pools agree, is anything
stuck?

It is the same as cilium-pool-operator check: it checks findings again after
--again and drops vanished ones. docs/reference/check.md explains each finding.

Exit codes: 0 no findings, 1 findings, 2 wrong command line, or the cluster could
not be read.`,
		Example: cli.Examples("check", "check -o json | jq '.findings[].reason'", "check --fail-on error", "check --watch-for 6m --again 30s"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const name = "kubectl cilium-pool check"
			o.LeaseIn(*e.Flags.Namespace)
			if err := o.Validate(); err != nil {
				return cli.Usagef("%w", err)
			}
			config, err := e.Config()
			if err != nil {
				cmd.PrintErrf("%s: the cluster was not audited: %v\n", name, err)
				return cli.Usage
			}
			config.Timeout = check.RequestTimeout
			if code := o.Run(cmd.Context(), name, config, e.Raw.Out, e.Raw.ErrOut); code != 0 {
				return cli.Code(code)
			}
			return nil
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
