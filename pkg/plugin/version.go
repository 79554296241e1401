package plugin

import (
	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// versions are the versions of the plugin and the operator.
type versions struct {
	Client string `json:"clientVersion"`
	// Operator is the version of the operator that leads or led last, and Commit its sources;
	// empty: unknown, and Unknown says why.
	Operator string `json:"operatorVersion,omitempty"`
	Commit   string `json:"operatorCommit,omitempty"`
	Unknown  string `json:"operatorUnknown,omitempty"`
}

func versionCommand(e *cli.Env) *cobra.Command {
	var o output.Flags
	client := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this command and of the operator",
		Long: `Shows the version of this command, and that of the operator that leads or led last,
as its Lease says.

Exit codes: 0, 1 the operator's version is not known, 2 wrong command line.`,
		Example: cli.Examples("version", "version --client", "version -o json"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: cmd.Root().Version}
			if !client {
				operator, err := e.FindOperator(cmd.Context())
				if err != nil {
					return err
				}
				v.Operator, v.Commit, v.Unknown = operator.Settings.Version, operator.Settings.Commit, operator.NoSettings
			}
			if err := e.Print(&o, v, func(s *output.Text) { v.describe(s, client) }); err != nil {
				return err
			}
			if v.Unknown != "" {
				return output.Failed
			}
			return nil
		},
	}
	o.AddFlags(cmd)
	cmd.Flags().BoolVar(&client, "client", client, "only the version of this command: no cluster is needed")
	return cmd
}

func (v *versions) describe(s *output.Text, client bool) {
	s.Line("Client Version: %s", v.Client)
	switch {
	case client:
	case v.Unknown != "":
		s.Line("Operator Version: unknown, as %s", v.Unknown)
	default:
		s.Line("Operator Version: %s", output.Dash(v.Operator))
	}
}
