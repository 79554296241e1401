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
)

const (
	// churnLife is the lifetime of a pod of the churn.
	churnLife = 3 * time.Second
)

// traffic consists of running connections over all nodes: pings from each node's first pod to
// the next node's, every 5 ms, and from each node to that pod, as kubelet probes it; and a TCP
// stream from each node's second pod to the next node's.
type traffic struct {
	pods, probes []*bed.Pings
	streams      []*bed.Stream
}

// startTraffic needs two pods of each node, in the order of the nodes.
func startTraffic(nodes [][]*bed.Pod) (*traffic, error) {
	t := &traffic{}
	for i, own := range nodes {
		next := nodes[(i+1)%len(nodes)]
		ping, err := own[0].Ping(next[0].Address, rapid)
		if err != nil {
			return nil, err
		}
		probe, err := own[0].Node().Ping(own[0].Address, pingEvery)
		if err != nil {
			return nil, err
		}
		stream, err := own[1].Stream(next[1], next[1].Address, rapid)
		if err != nil {
			return nil, err
		}
		t.pods, t.probes, t.streams = append(t.pods, ping), append(t.probes, probe), append(t.streams, stream)
	}
	return t, nil
}

// judgeTraffic stops the traffic. No packet may be lost, and no connection broken.
func (e *env) judgeTraffic(t *traffic, over string) {
	e.judgePings(t.pods, over+": packets lost between pods of all nodes, every 5 ms")
	e.judgePings(t.probes, over+": packets lost from each node to its own pod, every 10 ms")
	e.judgeStreams(t.streams, over+": TCP echoes of connections that stayed; slowest")
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
	p, err := n.CreatePod(ctx, name)
	if err != nil {
		return err
	}
	_ = pause(churning, c.sandboxTime) // The ADD follows even if ctx has ended.
	for !c.attach(ctx, p) {
		if err := p.Detach(ctx); err != nil {
			c.logf("%v", err)
		}
		if over(churning) {
			return nil
		}
		p = p.Again()
		_ = pause(churning, retryAfter) // Retry even if ctx has ended.
	}
	if err := p.Report(ctx); err != nil {
		return err
	}
	_ = pause(churning, churnLife) // Delete it even if ctx has ended.
	return p.Delete(ctx)
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

// attach tries one ADD, and records its outcome.
func (c *churn) attach(ctx context.Context, p *bed.Pod) bool {
	began := time.Now()
	err := p.Attach(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.tries = append(c.tries, failedAdd{p.Node().Name, began, time.Now(), err})
		return false
	}
	c.added++
	return true
}

// wasDown records when a node's agent was down.
func (c *churn) wasDown(node string, d bed.Downtime) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.downs[node] = append(c.downs[node], d)
}

// judgeChurn stops the churn. An ADD may fail while its node's agent is down, and at no other
// time.
func (e *env) judgeChurn(c *churn, over string) {
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
	e.Check(outside == 0 && err == nil && c.added > 0, over+": pods that came and went; CNI ADDs failed while the agent was down, and at other times",
		"%d; %d, %d", c.added, len(c.tries)-outside, outside)
}

func (f failedAdd) overlaps(d bed.Downtime) bool {
	return f.began.Before(d.Until) && f.ended.After(d.From)
}
