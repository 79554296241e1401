package floor

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// encodings are ways to publish one block in one write. All end in the same
// object, untracked without its managed fields.
func encodings() map[string]Program {
	each := func(write func(ctx context.Context, f *Floor, i int) error) Program {
		return func(ctx context.Context, f *Floor) error {
			return harness.Parallel(ctx, f.world.Nodes, Workers, func(ctx context.Context, i int) error { return write(ctx, f, i) })
		}
	}
	return map[string]Program{
		"merge":     each(mergePatch),
		"json":      each(jsonPatch),
		"apply":     each(serverSideApply),
		"partial":   each(partialAnswer),
		"untracked": each(func(ctx context.Context, f *Floor, i int) error { return f.publish(ctx, i) }),
		"least":     each(leastAnswer),
	}
}

func (f *Floor) send(ctx context.Context, kind types.PatchType, i int, body any, accept string) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r := f.api.Patch(kind).AbsPath(bed.CiliumNodes + "/" + bed.NodeName(i)).Body(data)
	if kind == types.ApplyPatchType {
		r = r.Param("fieldManager", "bench").Param("force", "true")
	}
	if accept != "" {
		r = r.SetHeader("Accept", accept)
	}
	if _, err := r.DoRaw(ctx); err != nil {
		return fmt.Errorf("%s of node %d: %w", kind, i, err)
	}
	return nil
}

func mergePatch(ctx context.Context, f *Floor, i int) error {
	return f.send(ctx, types.MergePatchType, i, f.publication(i), "")
}

// jsonPatch adds the pool and the list whole: to a CiliumNode that has neither.
func jsonPatch(ctx context.Context, f *Floor, i int) error {
	return f.send(ctx, types.JSONPatchType, i, []object{
		{"op": "add", "path": "/spec/ipam", "value": object{"pool": f.pool(i), "podCIDRs": f.cidrs(i, true)}},
	}, "")
}

func serverSideApply(ctx context.Context, f *Floor, i int) error {
	return f.send(ctx, types.ApplyPatchType, i, object{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": object{"name": bed.NodeName(i)},
		"spec": object{"ipam": object{"pool": f.pool(i), "podCIDRs": f.cidrs(i, true)}},
	}, "")
}

// partialAnswer is a merge patch that asks for the metadata alone in return.
func partialAnswer(ctx context.Context, f *Floor, i int) error {
	return f.send(ctx, types.MergePatchType, i, f.publication(i), metadataAlone)
}

// leastAnswer does the same without managed fields.
func leastAnswer(ctx context.Context, f *Floor, i int) error {
	return f.send(ctx, types.MergePatchType, i, f.untracked(i), metadataAlone)
}

// metadataAlone asks for the metadata of an object alone.
const metadataAlone = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
