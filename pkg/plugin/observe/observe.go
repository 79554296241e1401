// Package observe is kubectl cilium-pool observe.
package observe

import (
	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/plan"
)

// New returns the command observe.
func New(e *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "observe report",
		Short:   "Look at the addresses that any Cilium assigns, before you install anything",
		Long:    "Counts the addresses that Cilium assigns by itself, in cluster-pool, multi-pool,\nkubernetes or crd mode, before anything is installed.",
		Example: cli.Examples("observe report", "observe report --what-if pools.yaml", "observe report -o html > report.html"),
		RunE: func(*cobra.Command, []string) error {
			return cli.Usagef("say what to do: report")
		},
	}
	cmd.AddCommand(newReport(e))
	return cmd
}

func newReport(e *cli.Env) *cobra.Command {
	file := ""
	format := "text"
	cmd := &cobra.Command{
		Use:   "report",
		Short: "One page: addresses held, used and idle, and the savings with this operator",
		Long: `Shows on one page the ranges of nodes, the use of their addresses, nodes that are nearly
full, and the savings with this operator and blocks of 32 addresses, or with the
PodIPPools of --what-if.

With -o html it is one file with bars and the address map, to print and to hand on.
Where this operator assigns the addresses already, it says so, and compares them only with
the pools of --what-if.

It works without any installation, and only reads. Cilium's own objects show the IPAM
mode; if they contradict each other it says so, and shows no numbers.`,
		Example: cli.Examples("observe report", "observe report --what-if pools.yaml -o json", "observe report -o html > report.html"),
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if format != "text" && format != "json" && format != "html" {
				return cli.Usagef("--output is %s: must be text, json or html", format)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			pools, err := plan.ReadPools(e, file)
			if err != nil {
				return err
			}
			c, err := e.ReadObserving(cmd.Context())
			if err != nil {
				return err
			}
			if format == "html" {
				return WriteHTML(e.Out, c, pools, e.ContextName(), e.Version)
			}
			r, err := reportOf(c, pools)
			if err != nil {
				return err
			}
			if format == "json" {
				return cli.WriteJSON(e.Out, r)
			}
			return e.WriteText(r.text)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", format, "text, json or html")
	cmd.Flags().StringVar(&file, "what-if", file, "file with the PodIPPools that you would use; -: standard input. Empty: the same ranges in blocks of 32 addresses")
	cli.CompleteFlag(cmd, "output", "text", "json", "html")
	return cmd
}
