// Package imports is kubectl cilium-pool import.
package imports

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/importer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/exit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// origin is a source of an import.
type origin struct {
	name, short, long string
	examples          []string
	convert           func([]importer.Object) *importer.Result
	// reads is what --from-cluster reads.
	reads func(*cli.Env) []reading
	// hint is what to specify if nothing was found.
	hint string
}

func origins() []origin {
	return []origin{{
		name: "calico", short: "Make PodIPPools of Calico's IPPools",
		long: `Makes PodIPPools of Calico's IPPools (crd.projectcalico.org/v1 and
projectcalico.org/v3) and of the pools of an Installation (operator.tigera.io/v1),
with what IPReservations and the IPAM configuration say.

A nodeSelector is carried over where one Kubernetes label selector picks exactly
the same nodes. Where none does, the pool is written so that it serves no node
until you label some.`,
		examples: []string{"import calico -f ippools.yaml > pools.yaml", "import calico --from-cluster --strict > pools.yaml"},
		convert:  importer.Calico, reads: calicoReads,
		hint: "IPPools, or an Installation. Those that calico-node makes of its environment are in the cluster only: give --from-cluster",
	}, {
		name: "cilium", short: "Make PodIPPools of Cilium's pools or its cluster-pool settings",
		long: `Makes PodIPPools of CiliumPodIPPools (multi-pool mode), and of the settings of
cluster-pool mode: the ConfigMap cilium-config, or values of Cilium's Helm chart.

Cilium gives a pod the pool that its annotations or labels ask for, or the default
pool. Here, pods get the addresses of their node: other pools than the default one
are written so that they serve no node until you label some.`,
		examples: []string{"import cilium --from-cluster > pools.yaml", "import cilium -f values.yaml > pools.yaml"},
		convert:  importer.Cilium, reads: ciliumReads,
		hint: "CiliumPodIPPools, the ConfigMap cilium-config, or Helm values with ipam, also in a HelmChartConfig, a HelmRelease, an Application or under the key of a subchart",
	}, {
		name: "kubeadm", short: "Make PodIPPools of what gives Nodes their podCIDRs",
		long: `Makes PodIPPools of what gives Nodes their podCIDRs: kubeadm's
ClusterConfiguration, the flags of kube-controller-manager in the manifest of its
pod, and ClusterCIDRs (KEP-2593).

The manifest of a pod is believed before kubeadm's configuration, as it is what
runs.`,
		examples: []string{"import kubeadm --from-cluster > pools.yaml", "import kubeadm -f kubeadm.yaml -f clustercidrs.yaml > pools.yaml"},
		convert:  importer.Kubernetes, reads: kubernetesReads,
		hint: "a ClusterConfiguration with networking.podSubnet, the pod of kube-controller-manager with --cluster-cidr, or ClusterCIDRs",
	}}
}

// New returns the command import.
func New(e *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import calico|cilium|kubeadm",
		Short: "Make PodIPPools of pools and settings of others; nothing is applied",
		Long: `Makes PodIPPools of what says where pod addresses come from elsewhere, and writes
them as YAML. Nothing is applied: look them over, see what they would do (plan -f),
and apply them with kubectl. A blockSize cannot be changed later.

What could not be carried over is reported on standard error, and in comments of the
YAML: which object, which field, why, and what to do. docs/import.md has what
becomes of what.

Exit codes: 0 written; 1 nothing was written, as it could not be read or there was
nothing to import; 3 written, but something could not be carried over (with --strict).`,
		Example: cli.Examples("import calico --from-cluster > pools.yaml", "import cilium -f values.yaml > pools.yaml", "import kubeadm -f kubeadm.yaml --strict"),
		RunE: func(*cobra.Command, []string) error {
			return exit.Usagef("say what to import from: calico, cilium or kubeadm")
		},
	}
	for _, o := range origins() {
		cmd.AddCommand(importFromCommand(e, o))
	}
	return cmd
}

func importFromCommand(e *cli.Env, o origin) *cobra.Command {
	var files []string
	fromCluster, strict := false, false
	cmd := &cobra.Command{
		Use:   o.name + " -f FILE...|--from-cluster",
		Short: o.short,
		Long: o.long + `

Exit codes: 0 written; 1 nothing was written, as it could not be read or there was
nothing to import; 3 written, but something could not be carried over (with --strict).`,
		Example: cli.Examples(o.examples...),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fromCluster == (len(files) > 0) {
				return errors.New("give either -f FILE or --from-cluster")
			}
			objects, existing, err := readObjects(cmd.Context(), e, o, files)
			if err != nil {
				return err
			}
			result := o.convert(objects)
			result.Check(controller.DefaultSettings().Defaults, existing)
			return writeResult(e, o, objects, result, strict)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", files, "file to import from, YAML or JSON; -: standard input. May be given more than once")
	cmd.Flags().BoolVar(&fromCluster, "from-cluster", fromCluster, "import from the cluster, and compare with its PodIPPools")
	cmd.Flags().BoolVar(&strict, "strict", strict, "exit code 3 where something could not be carried over")
	return cmd
}

// readObjects reads the files or, without any, the cluster and its PodIPPools.
func readObjects(ctx context.Context, e *cli.Env, o origin, files []string) ([]importer.Object, []v1alpha1.PodIPPool, error) {
	if len(files) == 0 {
		return readCluster(ctx, e, o.reads(e))
	}
	var objects []importer.Object
	for _, file := range files {
		data, err := e.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		some, err := importer.Read(file, data)
		if err != nil {
			return nil, nil, err
		}
		objects = append(objects, some...)
	}
	return objects, nil, nil
}

// writeResult writes pools to standard output, and remarks to standard error.
func writeResult(e *cli.Env, o origin, objects []importer.Object, result *importer.Result, strict bool) error {
	for _, r := range result.Remarks {
		fmt.Fprintln(e.ErrOut, r)
	}
	if len(result.Pools) == 0 {
		found := ""
		if len(objects) > 0 {
			found = " of " + importer.Found(objects)
		}
		return fmt.Errorf("no PodIPPool was made%s. It takes %s", found, o.hint)
	}
	about := fmt.Sprintf("Made by kubectl cilium-pool import %s. Look it over before you apply it: a blockSize cannot be changed later.", o.name)
	if err := result.WriteYAML(e.Out, about); err != nil {
		return err
	}
	lost := result.Lost()
	fmt.Fprintf(e.ErrOut, "%s made, %s not carried over. Nothing was applied.\n",
		output.Count(len(result.Pools), "PodIPPool"), output.Plural(lost, "thing", "things"))
	if strict && lost > 0 {
		return exit.NotReached
	}
	return nil
}
