package plugin

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/check"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

func checkCommand(e *cli.Env) *cobra.Command {
	o := check.NewOptions()
	output := cli.Output{Kind: "Check"}
	o.Write = func(w io.Writer, report *audit.Report) error {
		if output.Readable() {
			return report.Text(w)
		}
		return e.Describe(&output, report, nil)
	}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Audit the cluster: do two nodes or pods have the same address?",
		Long: `Audits the cluster: do two nodes or pods have the same address, can agents
restore every address in use, do blocks, CiliumNodes and pools agree, is anything
stuck?

It is the same as cilium-pool-operator check: it checks findings again after
--every and drops vanished ones. docs/reference/check.md explains each finding.`,
		Example: cli.Examples("check", "check -o json | jq '.findings[].reason'", "check --fail-on error", "check --watch-for 6m --every 30s"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const name = "kubectl cilium-pool check"
			e.Locate(o)
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
	o.AddAuditFlags(cmd.Flags())
	output.AddFlags(cmd)
	return cmd
}
