// Package plugin is kubectl cilium-pool: the root command, check and version. Each
// other family of commands has a package of its own, and they share cli and list.
//
// Commands have no logic of their own about addresses: held, free and due blocks follow from
// pkg/state and pkg/expand, on a snapshot read by pkg/clusterread.
//
// drain changes pools and deletes blocks. migrate makes, labels and deletes blocks, annotates
// Nodes, and changes CiliumNodes of nodes that take up or leave an IPAM mode. No other command
// writes, and none writes a block's status.
package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/drain"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/explain"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/export"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/importcmd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/migrate"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/observe"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/plan"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/supportbundle"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/whois"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
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
	root.AddCommand(list.NewStatus(e), list.NewGet(e), checkCommand(e), explain.New(e), whois.New(e), export.New(e), importcmd.New(e), observe.New(e), migrate.New(e), drain.New(e), plan.New(e), addressmap.New(e), supportbundle.New(e), versionCommand(e), optionsCommand())
	completeHelp(root)
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

// failure is an error of a command that has begun.
type failure struct{ error }

func (e failure) Unwrap() error { return e.error }

// completeHelp adds the exit codes to each command's help, and distinguishes errors of commands that
// have begun from cobra's own, which concern the command line.
func completeHelp(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		_, name, _ := strings.Cut(cmd.CommandPath(), " cilium-pool ")
		cmd.Long += "\n\n" + cli.ExitsOf(name).String()
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := run(cmd, args); err != nil {
				return failure{err}
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		completeHelp(c)
	}
}

// Run runs the command and returns the exit code. It keeps the process's libraries from logging.
func Run(cmd *cobra.Command, streams genericiooptions.IOStreams) int {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	named, err := cmd.ExecuteC()
	var code cli.Code
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	errOut := termsafe.Writer(streams.ErrOut)
	fmt.Fprintf(errOut, "error: %v\n", err)
	if errors.As(err, &cli.UsageError{}) || !errors.As(err, &failure{}) {
		fmt.Fprintf(errOut, "See %s --help.\n", named.CommandPath())
		return int(cli.Usage)
	}
	return int(cli.Failed)
}

func versionCommand(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this command and of the operator",
		Long: `Shows the version of this command, and that of the operator that leads or led last,
as its Lease says. kubectl cilium-pool --version shows the first alone.`,
		Example: cli.Examples("version"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			operator, err := e.FindOperator(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(e.Out, "Client Version: %s\n", cmd.Root().Version)
			if operator.WhyNoSettings != "" {
				fmt.Fprintf(e.Out, "Operator Version: unknown, as %s\n", operator.WhyNoSettings)
				return cli.Failed
			}
			fmt.Fprintf(e.Out, "Operator Version: %s\n", cli.Dash(operator.Settings.Version))
			return nil
		},
	}
}
