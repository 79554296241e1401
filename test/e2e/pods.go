//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// retryAfter is the time that a runtime waits before it tries an ADD again.
	retryAfter = time.Second
	addTries   = 60
)

// crowd says how pods are started.
type crowd struct {
	width  int  // at a time
	retry  bool // failed ADDs are tried again, as a kubelet does
	silent bool // no status is written, as if no kubelet had seen the ADD
	meta   metav1.ObjectMeta
	first  int                              // the number of the first
	failed func(began time.Time, err error) // is called for each ADD that failed, if set
}

// runPods runs count pods, some at a time. It returns the pods that came up, in the order of
// their names, and the errors of the others.
func (e *env) runPods(ctx context.Context, n *bed.Node, prefix string, count int, c crowd) ([]*bed.Pod, []error) {
	pods, errs := make([]*bed.Pod, count), make([]error, count)
	_ = harness.Parallel(ctx, count, c.width, func(ctx context.Context, i int) error {
		pods[i], errs[i] = e.runPod(ctx, n, fmt.Sprintf("%s-%s-%d", prefix, n.Name, c.first+i), c)
		return nil
	})
	pods = slices.DeleteFunc(pods, func(p *bed.Pod) bool { return p == nil || !p.Address.IsValid() })
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	for _, err := range errs {
		e.logf("%v", err)
	}
	return pods, errs
}

// runPod creates, attaches and reports a pod. An ADD is tried again, as a kubelet does, where the agent had not seen
// the pod yet or was busy: that is no answer about addresses.
func (e *env) runPod(ctx context.Context, n *bed.Node, name string, c crowd) (*bed.Pod, error) {
	c.meta.Name = name
	p, err := n.CreatePod(ctx, c.meta)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		began := time.Now()
		if err = p.Attach(ctx); err == nil {
			break
		}
		if c.failed != nil && !notSeen(err) {
			c.failed(began, err)
		}
		if !c.retry && !notSeen(err) && !busy(err) || try == addTries {
			return nil, err
		}
		e.logf("%v", err)
		if err := p.Detach(ctx); err != nil {
			e.logf("%v", err)
		}
		p = p.Again()
		if err := harness.Sleep(ctx, retryAfter); err != nil {
			return nil, err
		}
	}
	if c.silent {
		return p, nil
	}
	return p, p.Report(ctx)
}

// busy reports whether an agent refused an ADD as it limits how many it processes, and in which time (Cilium v1.20.2,
// daemon/restapi/api_limits.go).
func busy(err error) bool { return err != nil && strings.Contains(err.Error(), "TooManyRequests") }

// notSeen reports whether an ADD failed because the agent had not seen the pod: in multi-pool
// mode it reads the requested pool from the pod (Cilium v1.20.1, pkg/ipam/allocator.go,
// determineIPAMPool). No address was requested then.
func notSeen(err error) bool {
	return err != nil && strings.Contains(err.Error(), "unable to determine IPAM pool for owner")
}
