// Package floor has bare programs that issue the writes, or the reads, that a measure needs,
// with the same parallelism as the operator, and have no other task. They keep no state, check
// no response and know the answer before they start.
//
// The writing ones repeat this operator's own writes, one Go program with one JSON body per
// request. They show the cost that an operator adds to them. A faster client might exist, and other
// writes, or fewer, might do. As in the operator, no watch shares a connection with writes.
// Answers are not decoded.
package floor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Workers is the number of requests in flight, equal to the operator's default --node-workers.
const Workers = 32

// Program is a bare program on a world.
type Program func(ctx context.Context, f *Floor) error

// Programs by name.
func Programs() map[string]Program {
	return map[string]Program{"claim": Claim, "serve": Serve, "stream": Stream, "watch": Watch}
}

// Floor is the environment of a bare program.
type Floor struct {
	config *rest.Config
	api    *rest.RESTClient
	world  bed.World
	say    func(string)
}

// New connects with a kubeconfig, without a client-side limit.
func New(kubeconfig string, w bed.World, say func(string)) (*Floor, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	api, err := bed.RawClient(config)
	return &Floor{config: config, api: api, world: w, say: say}, err
}

// connect opens the connection for writes, as the operator's is open before it has work. Many
// writes at once would each open one.
func (f *Floor) connect(ctx context.Context) error {
	_, err := f.api.Get().AbsPath("/version").DoRaw(ctx)
	return err
}

type object = map[string]any

func (f *Floor) post(ctx context.Context, path string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if _, err := f.api.Post().AbsPath(path).Body(data).SetHeader("Content-Type", "application/json").DoRaw(ctx); err != nil {
		return fmt.Errorf("create at %s: %w", path, err)
	}
	return nil
}

func (f *Floor) patch(ctx context.Context, path string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if _, err := f.api.Patch(types.MergePatchType).AbsPath(path).Body(data).DoRaw(ctx); err != nil {
		return fmt.Errorf("patch %s: %w", path, err)
	}
	return nil
}

// next is the block that node i gets: the first behind all existing ones.
func (f *Floor) next(i int) netip.Prefix { return bed.Block(f.world.Nodes*f.world.Blocks + i) }

func (f *Floor) createBlock(ctx context.Context, i int) error {
	cidr := f.next(i)
	b := crd.NewBlock(cidr, bed.PoolName, bed.NodeName(i), "5b4a3f0c-0000-4000-8000-000000000000")
	b.APIVersion, b.Kind = "cilium-pool.io/v1alpha1", "PodIPBlock"
	return f.post(ctx, bed.Blocks, b)
}

// cidrs returns the CIDRs of node i, with the next one.
func (f *Floor) cidrs(i int) []netip.Prefix {
	var out []netip.Prefix
	for j := range f.world.Blocks {
		out = append(out, bed.Block(i*f.world.Blocks+j))
	}
	return append(out, f.next(i))
}

// publish publishes the next block of node i. As this operator does, it removes the managed
// fields with the first block.
func (f *Floor) publish(ctx context.Context, i int) error {
	pool := object{}
	for _, addr := range bed.Addresses(f.next(i)) {
		pool[addr.String()] = object{}
	}
	body := object{"spec": object{"ipam": object{"pool": pool, "podCIDRs": f.cidrs(i)}}}
	if f.world.Blocks == 0 {
		body["metadata"] = object{"managedFields": []object{{}}}
	}
	return f.patch(ctx, bed.CiliumNodes+"/"+bed.NodeName(i), body)
}

// Claim creates a block for each node and publishes it.
func Claim(ctx context.Context, f *Floor) error {
	return harness.Parallel(ctx, f.world.Nodes, Workers, func(ctx context.Context, i int) error {
		if err := f.createBlock(ctx, i); err != nil {
			return err
		}
		return f.publish(ctx, i)
	})
}

// allocate creates a block for node i and publishes it in multi-pool mode.
func (f *Floor) allocate(ctx context.Context, i int) error {
	if err := f.createBlock(ctx, i); err != nil {
		return err
	}
	pools := []object{{"pool": "default", "cidrs": f.cidrs(i)}}
	return f.patch(ctx, bed.CiliumNodes+"/"+bed.NodeName(i), object{"spec": object{"ipam": object{"pools": object{"allocated": pools}}}})
}
