// Package importcmd is kubectl cilium-pool import.
package importcmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/importer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

type origin struct {
	convert func(objects []importer.Object, whole bool) *importer.Result
	// reads are the reads of import from the cluster.
	reads []reading
	// hint names the flags to specify if import found no source.
	hint string
}

func origins(e *cli.Env) map[string]origin {
	kind := func(group, version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	return map[string]origin{
		"calico": {importer.Calico, []reading{
			{kinds: []schema.GroupVersionKind{kind("projectcalico.org", "v3", "IPPool"), kind("crd.projectcalico.org", "v1", "IPPool")}},
			{kinds: []schema.GroupVersionKind{kind("projectcalico.org", "v3", "IPReservation"), kind("crd.projectcalico.org", "v1", "IPReservation")}},
			{kinds: []schema.GroupVersionKind{kind("projectcalico.org", "v3", "IPAMConfiguration"), kind("crd.projectcalico.org", "v1", "IPAMConfig")}},
		}, "IPPools, or an Installation. Those that calico-node makes of its environment are in the cluster only: leave out -f"},
		"cilium": {importer.Cilium, []reading{
			{kinds: []schema.GroupVersionKind{kind("", "v1", "ConfigMap")}, namespace: e.AgentNamespace, name: "cilium-config"},
			{kinds: apiclient.PodIPPoolKinds()},
		}, "CiliumPodIPPools, the ConfigMap cilium-config, or Helm values with ipam, also in a HelmChartConfig, a HelmRelease, an Application or under the key of a subchart"},
		"kubeadm": {importer.Kubernetes, []reading{
			{kinds: []schema.GroupVersionKind{kind("", "v1", "ConfigMap")}, namespace: "kube-system", name: "kubeadm-config"},
			{kinds: []schema.GroupVersionKind{kind("", "v1", "Pod")}, namespace: "kube-system", labels: client.MatchingLabels{"component": "kube-controller-manager"}},
			{kinds: []schema.GroupVersionKind{kind("networking.x-k8s.io", "v1", "ClusterCIDR"), kind("networking.k8s.io", "v1alpha1", "ClusterCIDR")}},
		}, "a ClusterConfiguration with networking.podSubnet, the pod of kube-controller-manager with --cluster-cidr, or ClusterCIDRs"},
	}
}

// New returns the command import.
func New(e *cli.Env) *cobra.Command {
	names := slices.Sorted(maps.Keys(origins(e)))
	var files []string
	source := ""
	mode := ""
	strict := false
	cmd := &cobra.Command{
		Use:   "import --from calico|cilium|kubeadm [-f FILE...]",
		Short: "Make PodIPPools of pools and settings of others, without applying them",
		Long: `Makes PodIPPools of the cluster, or of files, and writes them as YAML. It does not
apply them: look them over, see their effects (plan -f), and apply them with kubectl.
A blockSize (27 = blocks of 32 addresses) cannot be changed while nodes hold blocks.

  calico   IPPools, also of an Installation, IPReservations and IPAM configuration
  cilium   CiliumPodIPPools, and the settings of cluster-pool mode in the ConfigMap
           cilium-config or in values of Cilium's Helm chart
  kubeadm  ClusterConfiguration, flags of kube-controller-manager, and ClusterCIDRs

A pool that would serve other nodes than before is written so that it serves no node
until you label some. docs/import.md lists the conversions, and the remarks on settings
that it could not carry over.`,
		Example: cli.Examples("import --from calico > pools.yaml", "import --from cilium -f values.yaml > pools.yaml", "import --from kubeadm -f kubeadm.yaml -f clustercidrs.yaml --strict"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, known := origins(e)[source]
			if !known {
				return cli.Usagef("--from is %q: must be %s", source, suggest.OneOf(names))
			}
			target, err := ciliumnode.ParseMode(cmp.Or(mode, ciliumnode.CRD.String()))
			if err != nil {
				return cli.Usagef("--mode is %q: %w", mode, err)
			}
			objects, existing, err := readObjects(cmd.Context(), e, o, files)
			if err != nil {
				return err
			}
			if mode == "" && importer.RunsMultiPool(objects) {
				target = ciliumnode.MultiPool
			}
			defaults := config.DefaultSettings().Defaults
			defaults.WholeBlocks = target.WholeBlocks()
			defaults.CiliumPools = target.ManyPools()
			result := o.convert(objects, defaults.WholeBlocks)
			result.Check(defaults, existing)
			return writeResult(e, source, objects, result, strict)
		},
	}
	cmd.Flags().StringVar(&source, "from", source, "source: calico, cilium or kubeadm")
	cmd.Flags().StringArrayVarP(&files, "filename", "f", files, "file to import from, YAML or JSON; -: standard input. May be repeated. None: import from the cluster, and compare with its PodIPPools")
	cmd.Flags().BoolVar(&strict, "strict", strict, "exit code 3 where something could not be carried over")
	cmd.Flags().StringVar(&mode, "mode", mode, "IPAM mode that the agents will run in: crd, multi-pool, delegated-plugin or kubernetes. Empty: multi-pool if Cilium's agents run in it, else crd, which takes fewer sizes of blocks")
	cli.CompleteFlag(cmd, "from", names...)
	return cmd
}

// readObjects reads the files or, without any, the cluster and its PodIPPools.
func readObjects(ctx context.Context, e *cli.Env, o origin, files []string) ([]importer.Object, []v1alpha1.PodIPPool, error) {
	if len(files) == 0 {
		return readCluster(ctx, e, o.reads)
	}
	var objects []importer.Object
	for _, file := range files {
		data, err := e.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		found, err := importer.Read(file, data)
		if err != nil {
			return nil, nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil, nil
}

// writeResult writes pools to standard output, and remarks to standard error.
func writeResult(e *cli.Env, source string, objects []importer.Object, result *importer.Result, strict bool) error {
	for _, r := range result.Remarks {
		fmt.Fprintln(e.ErrOut, r)
	}
	if len(result.Pools) == 0 {
		found := ""
		if len(objects) > 0 {
			found = " of " + importer.DescribeUnconverted(objects)
		}
		return fmt.Errorf("no PodIPPool was made%s. It takes %s", found, origins(e)[source].hint)
	}
	header := fmt.Sprintf("Made by kubectl cilium-pool import --from %s. Look it over before you apply it: a blockSize cannot be changed while nodes hold blocks.", source)
	if err := result.WriteYAML(e.Out, header); err != nil {
		return err
	}
	lost := result.CountLost()
	fmt.Fprintf(e.ErrOut, "%s made, %s not carried over. Nothing was applied.\n",
		suggest.Count(len(result.Pools), "PodIPPool"), suggest.Plural(lost, "thing", "things"))
	if strict && lost > 0 {
		return cli.NotReached
	}
	return nil
}

// reading is a list that import requests from the API server.
type reading struct {
	// kinds are requested in turn until one has objects: several groups may serve the same
	// objects.
	kinds []schema.GroupVersionKind
	// namespace and labels restrict the list; name requests one object.
	namespace, name string
	labels          client.MatchingLabels
}

// readCluster reads the objects to import, and the existing PodIPPools. Kinds that
// the API server does not serve count as absent.
func readCluster(ctx context.Context, e *cli.Env, readings []reading) ([]importer.Object, []v1alpha1.PodIPPool, error) {
	c, err := e.Client()
	if err != nil {
		return nil, nil, err
	}
	var objects []importer.Object
	for _, r := range readings {
		found, err := r.read(ctx, c)
		if err != nil {
			return nil, nil, e.CannotRead(err)
		}
		objects = append(objects, found...)
	}
	pools := &v1alpha1.PodIPPoolList{}
	if err := c.List(ctx, pools); err != nil && !meta.IsNoMatchError(err) {
		return nil, nil, e.CannotRead(err)
	}
	return objects, pools.Items, nil
}

func (r reading) read(ctx context.Context, c client.Reader) ([]importer.Object, error) {
	const source = "the cluster"
	for _, kind := range r.kinds {
		if r.name != "" {
			one := &unstructured.Unstructured{}
			one.SetGroupVersionKind(kind)
			err := c.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: r.name}, one)
			if apierrors.IsNotFound(err) {
				return nil, nil
			} else if err != nil {
				return nil, err
			}
			return importer.FromContent(source, one.Object), nil
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		err := c.List(ctx, list, client.InNamespace(r.namespace), r.labels)
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, err
		}
		var objects []importer.Object
		for _, o := range list.Items {
			objects = append(objects, importer.FromContent(source, o.Object)...)
		}
		if len(objects) > 0 {
			return objects, nil
		}
	}
	return nil, nil
}
