package floor

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Reclaim takes each node's last block back by the writes of the handshake: the
// block drains, its free addresses are marked, the agent answers, they leave the
// pool, the block cools down, the entries are deleted, the block goes.
func Reclaim(ctx context.Context, f *Floor) error {
	return f.reclaimAll(ctx, func(context.Context, string) error { return nil })
}

// ReclaimSeeing is Reclaim with what a program needs that does not know how it
// ends: a watch of blocks, of which each has four versions, and a look at the
// CiliumNode before a block goes.
func ReclaimSeeing(ctx context.Context, f *Floor) error {
	blocks, err := bed.Follow(ctx, f.api, bed.Blocks, "")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(blocks.Run(ctx, func([]byte) {})) }()
	return f.reclaimAll(ctx, func(ctx context.Context, node string) error {
		_, err := f.api.Get().AbsPath(node).DoRaw(ctx)
		return err
	})
}

func (f *Floor) reclaimAll(ctx context.Context, look func(ctx context.Context, node string) error) error {
	watch, err := bed.Follow(ctx, f.api, bed.CiliumNodes, "")
	if err != nil {
		return err
	}
	answers := newAnswers()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(watch.Run(ctx, answers.take)) }()
	return harness.Parallel(ctx, f.world.Nodes, Workers, func(ctx context.Context, i int) error {
		return f.reclaim(ctx, i, answers.of(bed.NodeName(i)), look)
	})
}

// answers records which nodes' agents have answered.
type answers struct {
	mu     sync.Mutex
	byNode map[string]chan struct{}
}

func newAnswers() *answers { return &answers{byNode: map[string]chan struct{}{}} }

func (a *answers) of(node string) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byNode[node] == nil {
		a.byNode[node] = make(chan struct{}, 1)
	}
	return a.byNode[node]
}

func (a *answers) take(event []byte) {
	if !bytes.Contains(event, []byte(`"ready-for-release"`)) {
		return
	}
	select {
	case a.of(bed.Name(event)) <- struct{}{}:
	default:
	}
}

func (f *Floor) reclaim(ctx context.Context, i int, answered <-chan struct{}, look func(ctx context.Context, node string) error) error {
	cidr := f.cidrs(i, false)[f.world.Blocks-1]
	node, block := bed.CiliumNodes+"/"+bed.NodeName(i), bed.Blocks+"/"+crd.BlockName(cidr)
	marks, gone := object{}, object{}
	for _, addr := range bed.Addresses(cidr) {
		marks[addr.String()], gone[addr.String()] = "marked-for-release", nil
	}
	condition := func(name string) object {
		return object{"status": object{"conditions": []object{{"type": name, "status": "True", "reason": "Reclaim",
			"message": "the node needs it no more", "lastTransitionTime": "2026-01-01T00:00:00Z"}}}}
	}
	if err := f.patch(ctx, block+"/status", condition("Draining")); err != nil {
		return err
	}
	if err := f.patch(ctx, node+"/status", object{"status": object{"ipam": object{"release-ips": marks}}}); err != nil {
		return err
	}
	select {
	case <-answered:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the agent of %s: %w", bed.NodeName(i), context.Cause(ctx))
	}
	left := f.cidrs(i, false)[:f.world.Blocks-1]
	if err := f.patch(ctx, node, object{"spec": object{"ipam": object{"pool": gone, "podCIDRs": left}}}); err != nil {
		return err
	}
	if err := f.patch(ctx, block+"/status", condition("CoolingDown")); err != nil {
		return err
	}
	if err := f.patch(ctx, node+"/status", object{"status": object{"ipam": object{"release-ips": gone}}}); err != nil {
		return err
	}
	if err := look(ctx, node); err != nil {
		return fmt.Errorf("read %s: %w", node, err)
	}
	if err := f.patch(ctx, block, object{"metadata": object{"finalizers": nil}}); err != nil {
		return err
	}
	_, err := f.api.Delete().AbsPath(block).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("delete %s: %w", block, err)
	}
	return nil
}
