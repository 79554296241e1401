//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	midSurgePods  = 80
	midSurgeWidth = 16
	midSurgeBlock = 3 // the agent is killed when this one is claimed
	retryAfter    = time.Second
)

// restartSurge kills the agent in the middle of a surge.
func restartSurge(ctx context.Context, e *env) error {
	n, probe, err := e.pair(ctx)
	if err != nil {
		return err
	}
	s := &restarts{env: e, node: n, probe: probe}
	if err := s.midSurge(ctx); err != nil {
		return err
	}
	return e.judgeRules(ctx)
}

// midSurge runs pods 16 at a time, kills the agent while the node's third block is being
// added, and restarts it. ADDs that fail meanwhile are retried in a new sandbox.
func (s *restarts) midSurge(ctx context.Context) error {
	first, err := s.load(ctx, s.node, pinged)
	if err != nil {
		return err
	}
	flows, err := startPings(s.probe, first)
	if err != nil {
		return err
	}
	m := &surging{restarts: s, attached: slices.Clone(first)}
	done := make(chan error, 1)
	go func() { done <- m.run(ctx) }()
	if err := m.kill(ctx); err != nil {
		return errors.Join(err, <-done)
	}
	if err := <-done; err != nil {
		return err
	}
	s.alive = m.attached
	s.note("at the kill, pods attached, ADDs in flight; ADDs that failed over all", "%d, %d; %d", m.atKill, m.inFlight, m.failed)
	s.checkKept(ctx, s.node, s.alive, "pods at their address")
	addresses := map[string]bool{}
	for _, p := range s.alive {
		addresses[p.Address.String()] = true
	}
	s.check(len(addresses) == len(s.alive) && len(s.alive) == midSurgePods+pinged, "pods attached, addresses that they have", "%d, %d", len(s.alive), len(addresses))
	s.judgePings(flows, "packets lost by pods that were there before")
	extra := 0
	err = s.await(ctx, "the agent reports its pods and its router", func(cn *ciliumv2.CiliumNode) bool {
		extra = len(cn.Status.IPAM.Used) - len(s.alive) - 1
		return extra == 0
	})
	s.check(err == nil, "addresses that the agent holds beyond pods and router", "%d", extra)
	return nil
}

// surging is a surge whose ADDs are retried.
type surging struct {
	*restarts

	mu               sync.Mutex
	attached         []*bed.Pod
	begun, ended     int
	failed           int
	atKill, inFlight int
}

func (m *surging) run(ctx context.Context) error {
	errs := make([]error, midSurgePods)
	next := make(chan int)
	var workers sync.WaitGroup
	for range midSurgeWidth {
		workers.Go(func() {
			for i := range next {
				errs[i] = m.runOne(ctx, fmt.Sprintf("surging-%d", i))
			}
		})
	}
	for i := range midSurgePods {
		next <- i
	}
	close(next)
	workers.Wait()
	return errors.Join(errs...)
}

// runOne acts as kubelet and runtime do: it removes a sandbox whose ADD failed, and creates
// another one after a while.
func (m *surging) runOne(ctx context.Context, name string) error {
	p, err := m.node.CreatePod(ctx, name)
	if err != nil {
		return err
	}
	for range addTries {
		m.count(&m.begun)
		err = p.Attach(ctx)
		m.count(&m.ended)
		if err == nil {
			m.mu.Lock()
			m.attached = append(m.attached, p)
			m.mu.Unlock()
			return p.Report(ctx)
		}
		m.count(&m.failed)
		m.Logf("%v", err)
		if err := p.Detach(ctx); err != nil {
			m.Logf("%v", err)
		}
		p = p.Again()
		if err := pause(ctx, retryAfter); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s has no network after %d tries: %w", name, addTries, err)
}

func (m *surging) count(what *int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*what++
}

// kill kills the agent once the block is claimed, and restarts it.
func (m *surging) kill(ctx context.Context) error {
	err := m.Eventually(ctx, "the third block is claimed", func(ctx context.Context) error {
		blocks := &v1alpha1.PodIPBlockList{}
		if err := m.Client.List(ctx, blocks); err != nil {
			return err
		}
		held := 0
		for _, b := range blocks.Items {
			if b.Spec.NodeName == m.node.Name {
				held++
			}
		}
		if held < midSurgeBlock {
			return fmt.Errorf("%d blocks", held)
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.atKill, m.inFlight = len(m.attached), m.begun-m.ended
	m.mu.Unlock()
	return m.node.RestartAgent(ctx)
}
