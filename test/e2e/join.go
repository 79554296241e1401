//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	joins = 3
	// late is the delay of an operator that is busy, or has to make further calls, before it
	// fills a pool. The agent reads the pool about 100 ms after it has created its CiliumNode,
	// and then every 5 s.
	late = time.Second
)

// join measures the time from a Node's creation to a ready agent: with a
// CiliumNode that the operator created in advance, and with one that the agent
// creates itself and whose pool is filled at once or a second later.
func join(ctx context.Context, e *env) error {
	if err := e.start(ctx); err != nil {
		return err
	}
	if err := e.pool(ctx); err != nil {
		return err
	}
	atOnce, err := e.joinSome(ctx, "atonce", e.fillAfter(0, 0), nil)
	if err != nil {
		return err
	}
	later, err := e.joinSome(ctx, "later", e.fillAfter(late, joins), nil)
	if err != nil {
		return err
	}
	if _, err := e.StartOperator(); err != nil {
		return err
	}
	ahead, err := e.joinSome(ctx, "ahead", nil, e.isFilled)
	if err != nil {
		return err
	}
	e.note("Node created to agent ready, median of 3: CiliumNode made by the agent, pool filled 1 s later", "%.1f s", later.Seconds())
	e.note("the same, filled at once", "%.1f s", atOnce.Seconds())
	e.note("CiliumNode made ahead by the operator", "%.1f s", ahead.Seconds())
	e.note("ratio, made ahead to filled 1 s later", "%.2f", ahead.Seconds()/later.Seconds())
	return nil
}

// joinSome lets nodes join one after the other and returns the median time. If fill is set, it
// fills their pools; if before is set, their agents start after it.
func (e *env) joinSome(
	ctx context.Context, prefix string, fill func(context.Context, string, int) error, before func(context.Context, string) error,
) (time.Duration, error) {
	var all []time.Duration
	for i := range joins {
		name := fmt.Sprintf("%s%d", prefix, i)
		filled := make(chan error, 1)
		if fill == nil {
			filled <- nil
		} else {
			go func() { filled <- fill(ctx, name, i) }()
		}
		took, err := e.joinOne(ctx, name, before)
		if err != nil {
			return 0, err
		}
		if err := <-filled; err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	return median(all), nil
}

// joinOne adds a node and then stops its agent, so that the next one has the machine to
// itself.
func (e *env) joinOne(ctx context.Context, name string, before func(context.Context, string) error) (time.Duration, error) {
	n, err := e.AddNode(ctx, name)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := n.Register(ctx, nil); err != nil {
		return 0, err
	}
	if before != nil {
		if err := before(ctx, name); err != nil {
			return 0, err
		}
	}
	if err := n.StartAgent(ctx); err != nil {
		return 0, err
	}
	if err := n.WaitAgent(ctx); err != nil {
		return 0, err
	}
	took := time.Since(began)
	e.Logf("%s: ready after %.1f s", name, took.Seconds())
	return took, n.KillAgent(ctx)
}

func (e *env) isFilled(ctx context.Context, name string) error {
	return e.Eventually(ctx, "the operator has made CiliumNode "+name+" and filled its pool", func(ctx context.Context) error {
		cn, err := e.CiliumNode(ctx, name)
		if err != nil {
			return err
		}
		if len(cn.Spec.IPAM.Pool) != perBlock {
			return fmt.Errorf("it has %d addresses", len(cn.Spec.IPAM.Pool))
		}
		return nil
	})
}

// fillAfter returns a function that adds addresses to the pool of a CiliumNode some time after
// its agent has created it, from the blocks counted from first.
func (e *env) fillAfter(wait time.Duration, first int) func(context.Context, string, int) error {
	return func(ctx context.Context, name string, i int) error {
		patch, err := poolPatch(first + i)
		if err != nil {
			return err
		}
		err = e.Eventually(ctx, "the agent has made CiliumNode "+name, func(ctx context.Context) error {
			_, err := e.CiliumNode(ctx, name)
			return err
		})
		if err != nil {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		cn := &ciliumv2.CiliumNode{}
		cn.Name = name
		return e.Client.Patch(ctx, cn, patch)
	}
}

// poolPatch returns a patch that publishes a block of a range that no pool has.
func poolPatch(block int) (client.Patch, error) {
	pool := map[string]any{}
	for i := 1; i <= perBlock; i++ {
		pool[fmt.Sprintf("100.67.%d.%d", block, i)] = map[string]any{}
	}
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"ipam": map[string]any{
		"pool": pool, "podCIDRs": []string{fmt.Sprintf("100.67.%d.0/%d", block, blockSize)},
	}}})
	if err != nil {
		return nil, fmt.Errorf("make patch: %w", err)
	}
	return client.RawPatch("application/merge-patch+json", data), nil
}
