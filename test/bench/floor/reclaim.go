package floor

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Reclaim takes each node's last block back by the writes of the handshake: the block
// drains, its free addresses are marked, the agent answers, they leave the pool, the block
// cools down, the entries are deleted, the block goes. While an agent has not answered, the
// worker goes on with another node.
func Reclaim(ctx context.Context, f *Floor) error {
	watch, err := bed.Follow(ctx, f.config, bed.CiliumNodes, "")
	if err != nil {
		return err
	}
	if err := f.connect(ctx); err != nil {
		return err
	}
	answered := make(chan int, f.world.Nodes)
	taken := make([]bool, f.world.Nodes) // a node has further versions with its agent's answer
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		cancel(watch.Run(ctx, func(event []byte) {
			if !bytes.Contains(event, []byte(`"ready-for-release"`)) {
				return
			}
			if i, ok := numberOf(bed.Name(event)); ok && !taken[i] {
				taken[i] = true
				answered <- i
			}
		}))
	}()
	var next atomic.Int64
	// Each node has two steps. A node whose agent has answered goes first, so that no more are
	// begun than necessary.
	return harness.Parallel(ctx, 2*f.world.Nodes, Workers, func(ctx context.Context, _ int) error {
		select {
		case i := <-answered:
			return f.release(ctx, i)
		default:
		}
		if i := int(next.Add(1)) - 1; i < f.world.Nodes {
			return f.mark(ctx, i)
		}
		select {
		case i := <-answered:
			return f.release(ctx, i)
		case <-ctx.Done():
			return fmt.Errorf("waiting for agents: %w", context.Cause(ctx))
		}
	})
}

// mark drains the last block of node i, and marks its addresses.
func (f *Floor) mark(ctx context.Context, i int) error {
	cidr, node, block := f.last(i)
	if err := f.patch(ctx, block+"/status", condition("Draining")); err != nil {
		return err
	}
	return f.patch(ctx, node+"/status", object{"status": object{"ipam": object{"release-ips": all(cidr, "marked-for-release")}}})
}

// release takes the last block of node i, whose agent has agreed.
func (f *Floor) release(ctx context.Context, i int) error {
	cidr, node, block := f.last(i)
	gone, left := all(cidr, nil), f.cidrs(i, false)[:f.world.Blocks-1]
	if err := f.patch(ctx, node, object{"spec": object{"ipam": object{"pool": gone, "podCIDRs": left}}}); err != nil {
		return err
	}
	if err := f.patch(ctx, block+"/status", condition("CoolingDown")); err != nil {
		return err
	}
	if err := f.patch(ctx, node+"/status", object{"status": object{"ipam": object{"release-ips": gone}}}); err != nil {
		return err
	}
	if err := f.patch(ctx, block, object{"metadata": object{"finalizers": nil}}); err != nil {
		return err
	}
	if _, err := f.api.Delete().AbsPath(block).DoRaw(ctx); err != nil {
		return fmt.Errorf("delete %s: %w", block, err)
	}
	return nil
}

// last returns the CIDR of the last block of node i, and the paths of the node and the block.
func (f *Floor) last(i int) (cidr netip.Prefix, node, block string) {
	cidr = f.cidrs(i, false)[f.world.Blocks-1]
	return cidr, bed.CiliumNodes + "/" + bed.NodeName(i), bed.Blocks + "/" + crd.BlockName(cidr)
}

// all returns the same value for each address of a block.
func all(cidr netip.Prefix, value any) object {
	out := object{}
	for _, addr := range bed.Addresses(cidr) {
		out[addr.String()] = value
	}
	return out
}

func condition(name string) object {
	return object{"status": object{"conditions": []object{{"type": name, "status": "True", "reason": "Reclaim",
		"message": "the node needs it no more", "lastTransitionTime": "2026-01-01T00:00:00Z"}}}}
}
