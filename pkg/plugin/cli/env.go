// Package cli is shared by all commands of kubectl cilium-pool: their flags, their streams, and
// their connection to the cluster.
package cli

import (
	"context"
	"io"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/check"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// Env is shared by all commands.
type Env struct {
	// IOStreams write no terminal control characters; raw are the original streams.
	genericiooptions.IOStreams
	Raw     genericiooptions.IOStreams
	Flags   *genericclioptions.ConfigFlags
	Version string

	AgentNamespace, agentSelector string
	// given reports whether a shared flag is on the command line.
	given func(flag string) bool
	// warned are the warnings that have been printed.
	warned []string
	Place  *Place // nil: the cluster that flags name
	// mode is the flag's; "": detect it.
	mode string
	// Lease is the name of the operator's Lease; "": find it.
	Lease string

	client client.Client // nil: not made yet
	host   string        // of the API server
}

// NewEnv returns an Env with the defaults of all flags.
func NewEnv(streams genericiooptions.IOStreams, version string, place *Place) *Env {
	e := &Env{IOStreams: streams, Raw: streams, Flags: configFlags(), Version: version, Place: place}
	if place != nil {
		e.client, e.host = place.Client, "a simulation"
	}
	e.Out, e.ErrOut = termsafe.Writer(e.Out), termsafe.Writer(e.ErrOut)
	return e
}

// AddFlags adds the shared flags.
func (e *Env) AddFlags(fs *pflag.FlagSet) {
	e.Flags.AddFlags(fs)
	fs.Lookup("namespace").Usage = "namespace of the operator; empty: find it"
	e.given = fs.Changed
	defaults := config.DefaultSettings()
	fs.StringVar(&e.AgentNamespace, "cilium-namespace", defaults.AgentNamespace, "namespace of the Cilium agents; if not given: as the operator's Lease says")
	fs.StringVar(&e.agentSelector, "agent-selector", defaults.AgentSelector.String(), "label selector of the Cilium agents' pods; if not given: as the operator's Lease says")
	fs.StringVar(&e.mode, "mode", "", check.ModeUsage)
}

// configFlags returns kubectl's flags that select the cluster, the user and how to reach the
// API server.
func configFlags() *genericclioptions.ConfigFlags {
	f := genericclioptions.NewConfigFlags(false)
	f.CacheDir = nil // no cache between two calls
	return f
}

// ReadFile reads a file; "-" is standard input.
func (e *Env) ReadFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(e.In)
	}
	return os.ReadFile(name)
}

// Examples formats command lines for --help.
func Examples(lines ...string) string {
	out := ""
	for i, l := range lines {
		if i > 0 {
			out += "\n"
		}
		out += "  kubectl cilium-pool " + l
	}
	return out
}

// List prints the result of list for the cluster; with -w it reads the cluster again and again, and
// prints the changes.
func (e *Env) List(ctx context.Context, o *output.Flags, list func(*cluster.Cluster) (output.Listed, error)) error {
	return o.PrintList(ctx, e.Out, e.ErrOut, e.Sleep, func() (output.Listed, error) {
		c, err := e.Read(ctx)
		if err != nil {
			return output.Listed{}, err
		}
		return list(c)
	})
}

// Print writes v as data, or with describe as text.
func (e *Env) Print(o *output.Flags, v any, describe func(*output.Text)) error {
	if o.Readable() {
		return output.WriteText(e.Out, describe)
	}
	return o.Print(e.Out, e.ErrOut, v, output.Table{})
}
