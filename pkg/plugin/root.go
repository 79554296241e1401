package plugin

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const about = `Shows who holds which pod addresses, why, and what would change that, in a
cluster where cilium-pool-operator gives them out.

All commands but drain and migrate only read, with your own rights.`

// New is the command kubectl cilium-pool.
func New(streams genericiooptions.IOStreams, version string) *cobra.Command {
	return newCommand(newEnv(streams, version, nil))
}

// NewAt is New at a place.
func NewAt(p Place, streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(newEnv(streams, "", &p))
}

func newCommand(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-cilium_pool",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl cilium-pool"},
		Short:         "Look after the pod addresses of a cluster",
		Long:          about,
		Example:       examples("status", "explain edge-01", "whois 10.20.0.5"),
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       e.version,
	}
	root.SetOut(e.Out)
	root.SetErr(e.ErrOut)
	root.SetIn(e.In)
	e.addFlags(root.PersistentFlags())
	root.AddCommand(statusCommand(e), nodesCommand(e), poolsCommand(e), blocksCommand(e), checkCommand(e), explainCommand(e), whoisCommand(e), exportCommand(e), importCommand(e), migrateCommand(e), drainCommand(e), planCommand(e), topCommand(e), mapCommand(e), bundleCommand(e), versionCommand(e))
	markFailures(root)
	return root
}
