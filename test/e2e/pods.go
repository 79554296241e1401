//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// sandboxTime is the least time that a kubelet takes to make a sandbox.
	sandboxTime = 500 * time.Millisecond
	// retryAfter is the time that a runtime waits before it tries an ADD again.
	retryAfter = time.Second
	addTries   = 10
)

// crowd says how pods are started.
type crowd struct {
	width  int  // at a time
	retry  bool // failed ADDs are tried again, as a kubelet does
	silent bool // no status is written, as if no kubelet had seen the ADD
	meta   metav1.ObjectMeta
	first  int // the number of the first
}

// runPods runs count pods, some at a time. It returns the pods that came up, in the order of
// their names, and the errors of the others.
func (e *env) runPods(ctx context.Context, n *bed.Node, prefix string, count int, c crowd) ([]*bed.Pod, []error) {
	pods, errs := make([]*bed.Pod, count), make([]error, count)
	inParallel(count, c.width, func(i int) {
		pods[i], errs[i] = e.runPod(ctx, n, fmt.Sprintf("%s-%s-%d", prefix, n.Name, c.first+i), c)
	})
	pods = slices.DeleteFunc(pods, func(p *bed.Pod) bool { return p == nil || !p.Address.IsValid() })
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	for _, err := range errs {
		e.logf("%v", err)
	}
	return pods, errs
}

// runPod creates, attaches and reports a pod. An ADD is tried again where the agent had not
// seen the pod yet: no address was requested then.
func (e *env) runPod(ctx context.Context, n *bed.Node, name string, c crowd) (*bed.Pod, error) {
	c.meta.Name = name
	p, err := n.CreatePodWith(ctx, c.meta)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		if err = p.Attach(ctx); err == nil {
			break
		}
		if !c.retry && !notSeen(err) || try == addTries {
			return nil, err
		}
		e.logf("%v", err)
		if err := p.Detach(ctx); err != nil {
			e.logf("%v", err)
		}
		p = p.Again()
		if err := pause(ctx, retryAfter); err != nil {
			return nil, err
		}
	}
	if c.silent {
		return p, nil
	}
	return p, p.Report(ctx)
}

// deletePods deletes pods, four at a time.
func (e *env) deletePods(ctx context.Context, pods []*bed.Pod) error {
	errs := make([]error, len(pods))
	eachOf(pods, func(i int, p *bed.Pod) { errs[i] = p.Delete(ctx) })
	return errors.Join(errs...)
}

// eachOf calls do for each pod, for four at a time: an agent limits how many ADDs it
// processes, and on a slow machine refuses those that have waited for a minute (Cilium
// v1.20.1, daemon/restapi/api_limits.go).
func eachOf(pods []*bed.Pod, do func(int, *bed.Pod)) {
	inParallel(len(pods), 4, func(i int) { do(i, pods[i]) })
}

// inParallel calls do for 0 to count-1, at most width at a time.
func inParallel(count, width int, do func(int)) {
	_ = harness.Parallel(context.Background(), count, width, func(_ context.Context, i int) error { do(i); return nil })
}

// otherReasons returns the errors with another cause than a lack of addresses, such as
// an agent's limit on concurrent requests.
func otherReasons(errs []error) []error {
	return slices.DeleteFunc(slices.Clone(errs), func(err error) bool {
		return slices.ContainsFunc([]string{
			"no IPs currently available on the node",                    // crd mode
			"all CIDR ranges are exhausted", "pool not (yet) available", // multi-pool mode
		}, func(reason string) bool { return strings.Contains(err.Error(), reason) })
	})
}

// notSeen reports whether an ADD failed because the agent had not seen the pod: in multi-pool
// mode it reads the requested pool from the pod (Cilium v1.20.1, pkg/ipam/allocator.go,
// determineIPAMPool). No address was requested then.
func notSeen(err error) bool {
	return err != nil && strings.Contains(err.Error(), "unable to determine IPAM pool for owner")
}
