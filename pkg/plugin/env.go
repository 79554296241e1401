package plugin

import (
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/auditcmd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plain"
)

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

// newEnv is an env with the defaults of all flags.
func newEnv(streams genericiooptions.IOStreams, version string, place *Place) *env {
	e := &env{IOStreams: streams, raw: streams, flags: configFlags(), version: version, place: place, lease: leaseName}
	e.Out, e.ErrOut = plain.Writer(e.Out), plain.Writer(e.ErrOut)
	return e
}

// addFlags adds the flags of all commands.
func (e *env) addFlags(fs *pflag.FlagSet) {
	e.flags.AddFlags(fs)
	fs.Lookup("namespace").Usage = "namespace of the operator; empty: " + leaseNamespace
	e.given = fs.Changed
	defaults := controller.DefaultSettings()
	fs.StringVar(&e.agentNamespace, "cilium-namespace", defaults.AgentNamespace, "namespace of the Cilium agents; if not given: as the operator's Lease says")
	fs.StringVar(&e.agentSelector, "agent-selector", defaults.AgentSelector.String(), "label selector of the Cilium agents' pods; if not given: as the operator's Lease says")
	fs.StringVar(&e.mode, "mode", "", auditcmd.ModeUsage)
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
