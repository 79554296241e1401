package plugin

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/drain"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/explain"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/export"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/imports"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/mapcmd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/migrate"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/plan"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/supportbundle"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/whois"
)

const about = `Shows who holds which pod addresses, why, and what would change that, in a
cluster where cilium-pool-operator gives them out.

All commands but drain, renumber and migrate only read, with your own rights.`

// New returns the command kubectl cilium-pool.
func New(streams genericiooptions.IOStreams, version string) *cobra.Command {
	return newCommand(cli.NewEnv(streams, version, nil))
}

// NewAt returns New's command for a given place.
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
	root.AddCommand(list.NewStatus(e), list.NewNodes(e), list.NewPools(e), list.NewBlocks(e), checkCommand(e), explain.New(e), whois.New(e), export.New(e), imports.New(e), migrate.New(e), drain.New(e), drain.NewRenumber(e), plan.New(e), list.NewTop(e), mapcmd.New(e), supportbundle.New(e), versionCommand(e))
	markFailures(root)
	return root
}
