package plugin

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/drain"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/explain"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/export"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/importcmd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/mapcmd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/migrate"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/plan"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/supportbundle"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/whois"
)

const about = `Shows who holds which pod addresses and why, and changes that, in a cluster where
cilium-pool-operator assigns them.

All commands but drain and migrate only read, with your own rights.`

// New returns the command kubectl cilium-pool.
func New(streams genericiooptions.IOStreams, version string) *cobra.Command {
	return newCommand(cli.NewEnv(streams, version, nil))
}

// NewAt returns New's command for a place.
func NewAt(p cli.Place, streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(cli.NewEnv(streams, "", &p))
}

func newCommand(e *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-cilium_pool",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl cilium-pool"},
		Short:         "Look after the pod addresses of a cluster",
		Long:          about,
		Example:       cli.Examples("status", "explain edge-01", "whois 10.20.0.5"),
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       e.Version,
	}
	root.SetOut(e.Out)
	root.SetErr(e.ErrOut)
	root.SetIn(e.In)
	e.AddFlags(root.PersistentFlags())
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.Name() == optionsName {
			help(cmd, args)
			return
		}
		root.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
		help(cmd, args)
		fmt.Fprintf(e.Out, "\nUse \"kubectl cilium-pool %s\" for the flags of all commands.\n", optionsName)
	})
	root.AddCommand(list.NewStatus(e), list.NewGet(e), checkCommand(e), explain.New(e), whois.New(e), export.New(e), importcmd.New(e), migrate.New(e), drain.New(e), plan.New(e), mapcmd.New(e), supportbundle.New(e), versionCommand(e), optionsCommand())
	markFailures(root)
	return root
}

const optionsName = "options"

// optionsCommand returns the command that lists the flags of all commands, which the help of no
// other command repeats.
func optionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   optionsName,
		Short: "List the flags of all commands: which cluster, user and operator",
		Long: `Lists the flags that all commands have: kubectl's, which select the cluster and the
user (kubectl options lists them too), and the flags that locate the operator and
Cilium's agents.`,
		Example: cli.Examples("options", "status --context prod", "check --kubeconfig prod.yaml --as viewer"),
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}
