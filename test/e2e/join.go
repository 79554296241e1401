//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const joins = 3

// join measures the time from a Node's creation to a ready agent, with a
// CiliumNode that the operator has made ahead, and with one that the agent has
// to make itself and whose pool is filled the moment it appears.
func join(ctx context.Context, e *env) error {
	if err := e.start(ctx); err != nil {
		return err
	}
	if err := e.pool(ctx); err != nil {
		return err
	}
	var without, ahead []time.Duration
	for i := range joins {
		filled := make(chan error, 1)
		name := fmt.Sprintf("without%d", i)
		go func() { filled <- e.fillWhenSeen(ctx, name, i) }()
		took, err := e.joinOne(ctx, name)
		if err != nil {
			return err
		}
		if err := <-filled; err != nil {
			return err
		}
		without = append(without, took)
	}
	if _, err := e.StartOperator(); err != nil {
		return err
	}
	for i := range joins {
		took, err := e.joinOne(ctx, fmt.Sprintf("ahead%d", i))
		if err != nil {
			return err
		}
		ahead = append(ahead, took)
	}
	slices.Sort(without)
	slices.Sort(ahead)
	w, a := without[joins/2], ahead[joins/2]
	e.note("Node created to agent ready, CiliumNode made by the agent, median of 3", "%.1f s", w.Seconds())
	e.note("the same, CiliumNode made ahead", "%.1f s", a.Seconds())
	e.check(a < w, "ratio, ahead to without", "%.2f", a.Seconds()/w.Seconds())
	return nil
}

// joinOne adds a node and takes its agent away again, so that the next one has
// the machine for itself.
func (e *env) joinOne(ctx context.Context, name string) (time.Duration, error) {
	n, err := e.AddNode(ctx, name)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := n.Register(ctx, nil); err != nil {
		return 0, err
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

// fillWhenSeen gives a CiliumNode a pool as soon as its agent has made it.
func (e *env) fillWhenSeen(ctx context.Context, name string, block int) error {
	pool := map[string]any{}
	for i := 1; i <= perBlock; i++ {
		pool[fmt.Sprintf("100.163.%d.%d", block, i)] = map[string]any{}
	}
	cn := &ciliumv2.CiliumNode{}
	cn.Name = name
	patch, err := mergePatch(map[string]any{"spec": map[string]any{"ipam": map[string]any{
		"pool": pool, "podCIDRs": []string{fmt.Sprintf("100.163.%d.0/%d", block, blockSize)},
	}}})
	if err != nil {
		return err
	}
	return e.Eventually(ctx, "the agent has made CiliumNode "+name, func(ctx context.Context) error {
		err := e.Client.Patch(ctx, cn, patch)
		if err != nil && !apierrors.IsNotFound(err) {
			e.Logf("%s: %v", name, err)
		}
		return err
	})
}

func mergePatch(v any) (client.Patch, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return client.RawPatch("application/merge-patch+json", data), nil
}
