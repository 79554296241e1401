package floor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const podsPath = "/api/v1/pods"

// podFields are the pods that the operator reads.
const podFields = "spec.nodeName!=,spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed"

// Watch takes in every event of CiliumNodes and pods, and throws it away.
func Watch(ctx context.Context, f *Floor) error {
	nodes, err := bed.Follow(ctx, f.config, bed.CiliumNodes, "")
	if err != nil {
		return err
	}
	pods, err := bed.Follow(ctx, f.config, podsPath, podFields)
	if err != nil {
		return err
	}
	f.say("ready")
	watches := []*bed.Follower{nodes, pods}
	return harness.Parallel(ctx, len(watches), len(watches), func(ctx context.Context, i int) error {
		return watches[i].Run(ctx, func([]byte) {})
	})
}

// Serve creates and publishes a block for each node, unless nodes have their first block, and
// then a second block for every node with an agent that requests it.
func Serve(ctx context.Context, f *Floor) error {
	if f.world.Blocks == 0 {
		return harness.Parallel(ctx, f.world.Nodes, Workers, f.allocate)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events, err := bed.Follow(ctx, f.config, bed.CiliumNodes, "")
	if err != nil {
		return err
	}
	if err := f.connect(ctx); err != nil {
		return err
	}
	queue := make(chan int, f.world.Nodes)
	go func() {
		cancel(harness.Parallel(ctx, f.world.Nodes, Workers, func(ctx context.Context, _ int) error {
			select {
			case i := <-queue:
				return f.allocate(ctx, i)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
	}()
	f.say("ready")
	asked := fmt.Appendf(nil, `"needed":{"ipv4-addrs":%d}`, bed.World{Blocks: 2}.Requested()[0].Needed.IPv4Addrs)
	seen := map[string]bool{}
	err = events.Run(ctx, func(event []byte) {
		name := bed.Name(event)
		if i, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:]); err == nil && !seen[name] && bytes.Contains(event, asked) {
			seen[name] = true
			queue <- i
		}
	})
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause // a write has failed
	}
	return err
}
