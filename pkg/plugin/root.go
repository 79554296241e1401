package plugin

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/auditcmd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plain"
)

const about = `Shows who holds which pod addresses, why, and what would change that, in a
cluster where cilium-pool-operator gives them out.

All commands but drain and migrate only read, with your own rights.`

// env is what all commands share.
type env struct {
	// IOStreams write no character that a terminal obeys; raw are as they came.
	genericiooptions.IOStreams
	raw     genericiooptions.IOStreams
	flags   *genericclioptions.ConfigFlags
	version string

	agentNamespace, agentSelector string
	// given reports whether a flag of all commands is on the command line.
	given func(flag string) bool
	// warned are the warnings that have been printed.
	warned []string
	place  *Place // nil: the cluster that flags name
	// mode is the flag's; "": detect it.
	mode string
	// lease is the name of the operator's Lease.
	lease string
}

// New is the command kubectl cilium-pool.
func New(streams genericiooptions.IOStreams, version string) *cobra.Command {
	return newCommand(&env{IOStreams: streams, flags: configFlags(), version: version, lease: leaseName})
}

func newCommand(e *env) *cobra.Command {
	e.raw = e.IOStreams
	e.Out, e.ErrOut = plain.Writer(e.Out), plain.Writer(e.ErrOut)
	root := &cobra.Command{
		Use:           "kubectl-cilium_pool",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl cilium-pool"},
		Short:         "Look after the pod addresses of a cluster",
		Long:          about,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       e.version,
	}
	root.Example = examples("status", "explain edge-01", "whois 10.20.0.5")
	root.SetOut(e.Out)
	root.SetErr(e.ErrOut)
	root.SetIn(e.In)
	e.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().Lookup("namespace").Usage = "namespace of the operator; empty: " + leaseNamespace
	e.given = root.PersistentFlags().Changed
	defaults := controller.DefaultSettings()
	root.PersistentFlags().StringVar(&e.agentNamespace, "cilium-namespace", defaults.AgentNamespace, "namespace of the Cilium agents; if not given: as the operator's Lease says")
	root.PersistentFlags().StringVar(&e.agentSelector, "agent-selector", defaults.AgentSelector.String(), "label selector of the Cilium agents' pods; if not given: as the operator's Lease says")
	root.PersistentFlags().StringVar(&e.mode, "mode", "", auditcmd.ModeUsage)
	root.AddCommand(e.status(), e.nodes(), e.pools(), e.blocks(), e.check(), e.explain(), e.whois(), e.export(), e.importPools(), e.migrate(), e.drain(), e.plan(), e.top(), e.addressMap(), e.supportBundle(), e.versions())
	markFailures(root)
	return root
}

// configFlags are those of kubectl's that choose the cluster, the user and how to
// reach the API server.
func configFlags() *genericclioptions.ConfigFlags {
	f := genericclioptions.NewConfigFlags(false)
	f.CacheDir = nil // nothing is kept between two calls
	return f
}

// examples are command lines, as --help shows them.
func examples(lines ...string) string {
	out := ""
	for i, l := range lines {
		if i > 0 {
			out += "\n"
		}
		out += "  kubectl cilium-pool " + l
	}
	return out
}
