package plugin

import (
	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/auditcmd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/live"
)

func (e *env) check() *cobra.Command {
	o := auditcmd.NewOptions(auditSettings(), live.Where{LeaseNamespace: leaseNamespace, LeaseName: leaseName, CiliumNamespace: agentNamespace}, agentSelector)
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Audit the cluster: does anybody have an address that another has?",
		Long: `Audits the cluster: does anybody have an address that another has, is every
address in use where its agent can restore it, do blocks, CiliumNodes and pools
agree, does anything stand still that should pass?

It is the same as cilium-pool-operator check: what is found is looked at again
after --again, and what is no longer so is dropped. docs/check.md explains each
finding.

Exit codes: 0 nothing is wrong, 1 something is, 2 wrong command line, or the
cluster could not be read.`,
		Example: examples("check", "check -o json | jq '.findings[].reason'", "check --fail-on error", "check --watch-for 6m --again 30s"),
		Args:    auditArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const name = "kubectl cilium-pool check"
			usage := func(err error) error {
				cmd.PrintErrf("%s: %v\nSee %s --help.\n", name, err, name)
				return ExitCode(2)
			}
			o.LeaseIn(*e.flags.Namespace)
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			config, err := e.config()
			if err != nil {
				cmd.PrintErrf("%s: the cluster was not audited: %v\n", name, err)
				return ExitCode(2)
			}
			config.Timeout = auditcmd.RequestTimeout
			if code := o.Run(cmd.Context(), name, config, e.Out, e.ErrOut); code != 0 {
				return ExitCode(code)
			}
			return nil
		},
	}
	o.AddFlags(cmd.Flags())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		cmd.PrintErrf("kubectl cilium-pool check: %v\nSee kubectl cilium-pool check --help.\n", err)
		return ExitCode(2)
	})
	return cmd
}

func auditArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		cmd.PrintErrf("kubectl cilium-pool check: unexpected argument %q\nSee kubectl cilium-pool check --help.\n", args[0])
		return ExitCode(2)
	}
	return nil
}
