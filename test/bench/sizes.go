package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// sizeNodes is enough because objects of a kind are alike.
const sizeNodes = 4

// sizes measures bytes per object, as JSON: what etcd stores of custom resources, and what
// every watcher of them receives. CiliumNodes have no managed fields, as this operator leaves
// them.
func (b *bench) sizes(ctx context.Context) error {
	b.results.Sizes = map[string]float64{}
	for _, blocks := range []int{1, 2, 4, 8, 16} {
		w := bed.World{Mode: bed.CRD, Nodes: sizeNodes, Blocks: blocks, Used: 24 * blocks, Pods: 1}
		if err := b.sizesOf(ctx, w); err != nil {
			return err
		}
	}
	return b.save()
}

func (b *bench) sizesOf(ctx context.Context, w bed.World) error {
	st, err := b.store.Open(ctx, w)
	if err != nil {
		return err
	}
	err = func() error {
		// A second report, as agents write it.
		r := &run{Stage: st, bench: b, world: w}
		if _, err := r.report(ctx, sizeNodes, sizeNodes, sizeNodes)(); err != nil {
			return err
		}
		addresses := len(bed.Addresses(bed.Block(0))) * w.Blocks
		for name, list := range map[string]client.ObjectList{
			fmt.Sprintf("CiliumNode, %d addresses, %d in use", addresses, w.Used): &ciliumv2.CiliumNodeList{},
			"PodIPBlock": &v1alpha1.PodIPBlockList{}, "Node": &corev1.NodeList{}, "Pod": &corev1.PodList{},
		} {
			size, err := bytesPerObject(ctx, st.Client, list)
			if err != nil {
				return err
			}
			b.results.Sizes[name] = size
		}
		return nil
	}()
	return errors.Join(err, st.Close())
}

func bytesPerObject(ctx context.Context, c client.Client, list client.ObjectList) (float64, error) {
	if err := c.List(ctx, list); err != nil {
		return 0, err
	}
	data, err := json.Marshal(list)
	if err != nil {
		return 0, err
	}
	var items struct{ Items []json.RawMessage }
	if err := json.Unmarshal(data, &items); err != nil {
		return 0, err
	}
	sum := 0
	for _, item := range items.Items {
		sum += len(item)
	}
	return float64(sum) / float64(max(1, len(items.Items))), nil
}

func sizesTable(k kept) string {
	if k.sizes == nil {
		return ""
	}
	var out strings.Builder
	out.WriteString("### Bytes per object\n\nAs JSON: what etcd keeps of custom resources, and what each watch of them receives. CiliumNodes are without managed fields, as this operator leaves them in crd mode. Commit " + k.sizes.Commit + ".\n\n| object | bytes |\n| --- | --- |\n")
	for _, name := range slices.SortedFunc(maps.Keys(k.sizes.Sizes), func(a, b string) int { return int(k.sizes.Sizes[a] - k.sizes.Sizes[b]) }) {
		fmt.Fprintf(&out, "| %s | %.0f |\n", name, k.sizes.Sizes[name])
	}
	return out.String() + "\n"
}
