// Package plan is kubectl cilium-pool plan.
package plan

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// New returns the command plan.
func New(e *cli.Env) *cobra.Command {
	o := cli.Output{Kind: "Plan"}
	var files []string
	remove := []string{}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show the effects of an edit of pools, without a write",
		Long: `Shows the effects of applying the PodIPPools in a file: nodes that get another pool,
blocks that would be claimed and blocks that would go, with the number of pods on them,
changed routes, nodes that no pool would serve any more, and nodes that could not get
the addresses they need.

It asks the operator's own deciding code, on the cluster as it is now, for the first
step of each node: the blocks that must go, and their replacements. Blocks that would
be reclaimed later, as they idle, are not in it. The API server's own checks of the file
are not made; kubectl apply --dry-run=server makes them.`,
		Example: cli.Examples("plan -f pools.yaml", "plan --delete old-pool", "plan -f - < pools.yaml"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var edits []v1alpha1.PodIPPool
			for _, file := range files {
				pools, err := ReadPools(e, file)
				if err != nil {
					return err
				}
				edits = append(edits, pools...)
			}
			if len(edits)+len(remove) == 0 {
				return cli.Usagef("nothing to plan: give -f FILE or --delete POOL")
			}
			current, err := e.ReadAll(cmd.Context())
			if err != nil {
				return err
			}
			result, err := edited(current, edits, remove)
			if err != nil {
				return err
			}
			effect := effectOf(current, result)
			return e.Describe(&o, effect, effect.describe)
		},
	}
	o.AddFlags(cmd)
	cmd.Flags().StringArrayVarP(&files, "filename", "f", files, "file with PodIPPools; -: standard input. May be repeated")
	cmd.Flags().StringSliceVar(&remove, "delete", remove, "pools that would be deleted")
	_ = cmd.RegisterFlagCompletionFunc("delete", e.CompletePools)
	return cmd
}

// ReadPools reads the PodIPPools of a file, and rejects unknown fields.
func ReadPools(e *cli.Env, file string) ([]v1alpha1.PodIPPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := e.ReadFile(file)
	if err != nil {
		return nil, err
	}
	scheme, err := apiclient.Scheme()
	if err != nil {
		return nil, err
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	var pools []v1alpha1.PodIPPool
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return pools, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		obj, _, err := decoder.Decode(doc, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		pool, ok := obj.(*v1alpha1.PodIPPool)
		if !ok || pool.Name == "" {
			return nil, fmt.Errorf("reading %s: %T is no PodIPPool with a name", file, obj)
		}
		pools = append(pools, *pool)
	}
}

// CheckPool fails for a pool that would be invalid.
func CheckPool(p *v1alpha1.PodIPPool, d crd.Defaults) error {
	pool, err := crd.PoolFrom(p, d)
	if err == nil {
		err = pool.Problem()
	}
	if err != nil {
		return fmt.Errorf("pool %s would be invalid: %w", p.Name, err)
	}
	return nil
}

// edited returns the cluster as it would be with these pools applied and those deleted.
func edited(c *clusterview.Cluster, edits []v1alpha1.PodIPPool, remove []string) (*clusterview.Cluster, error) {
	s := *c.Objects
	s.Pools = slices.Clone(s.Pools)
	find := func(name string) int {
		return slices.IndexFunc(s.Pools, func(p v1alpha1.PodIPPool) bool { return p.Name == name })
	}
	for _, p := range edits {
		if err := CheckPool(&p, c.State.Defaults); err != nil {
			return nil, err
		}
		if i := find(p.Name); i >= 0 {
			p.ObjectMeta = *s.Pools[i].ObjectMeta.DeepCopy()
			p.Status = s.Pools[i].Status
			p.Generation++
			s.Pools[i] = p
		} else {
			p.CreationTimestamp = metav1.NewTime(c.Now)
			p.Generation = 1
			s.Pools = append(s.Pools, p)
		}
	}
	for _, name := range remove {
		i := find(name)
		if i < 0 {
			return nil, fmt.Errorf("there is no PodIPPool %s to delete", name)
		}
		p := *s.Pools[i].DeepCopy()
		p.DeletionTimestamp = &metav1.Time{Time: c.Now}
		s.Pools[i] = p
	}
	result := clusterview.New(&s, c.Operator)
	result.Hypothetical = true
	return result, nil
}
