// Package plan is kubectl cilium-pool plan.
package plan

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/exit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// New is the command plan.
func New(e *cli.Env) *cobra.Command {
	var o output.Flags
	file, remove := "", []string{}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Tell what an edit of pools would do; nothing is written",
		Long: `Tells what would happen if the PodIPPools in a file were applied: which nodes get
another pool, which blocks would be claimed and which would have to go, with how
many pods on them, which routes change, which nodes no pool would serve any more,
and which could not get what they need.

It asks the operator's own deciding code, on what the cluster shows now, for the
first step of each node: what must go, and what takes its place. Pods move at their
own pace after that. Blocks that would be reclaimed later, as they idle, are not in it.
The API server's own checks of the file are not made; kubectl apply --dry-run=server
makes them. Nothing is written.`,
		Example: cli.Examples("plan -f pools.yaml", "plan --delete old-pool", "plan -f - < pools.yaml"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			edits, err := readPools(e, file)
			if err != nil {
				return err
			}
			if len(edits)+len(remove) == 0 {
				return exit.Usagef("nothing to plan: give -f FILE or --delete POOL")
			}
			before, err := e.Read(cmd.Context())
			if err != nil {
				return err
			}
			after, err := edited(before, edits, remove)
			if err != nil {
				return err
			}
			effect := effectOf(before, after)
			if o.Readable() {
				return effect.text(e.Out)
			}
			return o.Print(e.Out, e.ErrOut, effect, output.Table{})
		},
	}
	o.AddFlags(cmd)
	cmd.Flags().StringVarP(&file, "filename", "f", file, "file with PodIPPools; -: standard input")
	cmd.Flags().StringSliceVar(&remove, "delete", remove, "pools that would be deleted")
	_ = cmd.RegisterFlagCompletionFunc("delete", e.CompletePools)
	return cmd
}

// readPools reads the PodIPPools of a file. Unknown fields are refused.
func readPools(e *cli.Env, file string) ([]*v1alpha1.PodIPPool, error) {
	if file == "" {
		return nil, nil
	}
	in := e.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	scheme, err := controller.Scheme()
	if err != nil {
		return nil, err
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	var pools []*v1alpha1.PodIPPool
	for documents := yaml.NewYAMLReader(bufio.NewReader(in)); ; {
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
		pools = append(pools, pool)
	}
}
