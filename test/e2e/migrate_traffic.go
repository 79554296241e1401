//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// churnLife is the lifetime of a pod of the churn.
const churnLife = 3 * time.Second

// The connections of traffic, by the names of their flows and streams.
const (
	podTraffic    = "traffic between pods of all nodes, every 5 ms"
	probeTraffic  = "traffic from each node to its own pod, every 10 ms"
	streamTraffic = "traffic over connections that stayed"
)

// startTraffic starts connections over all nodes: pings from each node's first pod to the next
// node's, and from each node to that pod, as kubelet probes it; and a TCP stream from each node's
// second pod to the next node's. It needs two pods of each node, in the order of the nodes.
func (e *env) startTraffic(nodes [][]*bed.Pod) error {
	for i, own := range nodes {
		next := nodes[(i+1)%len(nodes)]
		if err := errors.Join(e.flowTo(podTraffic, own[0], next[0].Address, rapid), e.flowTo(probeTraffic, own[0].Node(), own[0].Address, 2*rapid),
			e.streamTo(streamTraffic, own[1], next[1], next[1].Address)); err != nil {
			return err
		}
	}
	return nil
}

// churn creates and deletes pods on all nodes, one at a time on each. A failed CNI ADD
// is retried, as a kubelet does.
type churn struct {
	*env
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	added int
	tries []failedAdd
	downs map[string][]bed.Downtime // by node
	errs  []error
}

// failedAdd is one CNI ADD that failed.
type failedAdd struct {
	node         string
	began, ended time.Time
	err          error
}

func (e *env) startChurn(ctx context.Context, name string, nodes []*bed.Node) *churn {
	ctx, cancel := context.WithCancel(ctx)
	c := &churn{env: e, stop: cancel, downs: map[string][]bed.Downtime{}}
	for _, n := range nodes {
		c.done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := c.one(ctx, n, fmt.Sprintf("%s-%s-%d", name, n.Name, i)); err != nil {
					c.mu.Lock()
					c.errs = append(c.errs, err)
					c.mu.Unlock()
					return
				}
			}
		})
	}
	return c
}

// one creates and deletes one pod. An ADD that has begun always completes, so that it leaves
// no pod half attached.
func (c *churn) one(churning context.Context, n *bed.Node, name string) error {
	ctx := context.WithoutCancel(churning)
	p, err := c.runPod(ctx, n, name, crowd{retry: true, failed: func(began time.Time, err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tries = append(c.tries, failedAdd{n.Name, began, time.Now(), err})
	}})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.added++
	c.mu.Unlock()
	_ = harness.Sleep(churning, churnLife) // Delete it even if ctx has ended.
	return p.Delete(ctx)
}

// wasDown records when a node's agent was down.
func (c *churn) wasDown(node string, d bed.Downtime) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.downs[node] = append(c.downs[node], d)
}

// judgeChurn stops the churn. An ADD may fail while its node's agent is down, and at no other
// time.
func (e *env) judgeChurn(c *churn) {
	c.stop()
	c.done.Wait()
	outside := 0
	for _, t := range c.tries {
		if !slices.ContainsFunc(c.downs[t.node], t.overlaps) {
			outside++
			e.logf("%s: CNI ADD failed while the agent was up: %v", t.node, t.err)
		}
	}
	err := errors.Join(c.errs...)
	if err != nil {
		e.logf("%v", err)
	}
	e.Check(outside == 0 && err == nil && c.added > 0, "churn: pods that came and went; CNI ADDs failed while the agent was down, and at other times",
		"%d; %d, %d", c.added, len(c.tries)-outside, outside)
}

func (f failedAdd) overlaps(d bed.Downtime) bool {
	return f.began.Before(d.Until) && f.ended.After(d.From)
}
