//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	surgePods = 120
	// sandboxTime is the least time a kubelet takes to make a sandbox.
	sandboxTime = 500 * time.Millisecond
	// mostOthers is how many ADDs of a surge may fail for another reason than a lack of
	// addresses: on a slow machine the agent refuses requests that have waited for long
	// (Cilium v1.20.1, daemon/restapi/api_limits.go), and a kubelet would retry those.
	mostOthers = surgePods / 10
)

// surge starts 120 pods on a node that has one /27: 4 at a time, and then, on another
// node, 16 at a time. Each CNI ADD starts as soon as its pod's creation returns, and is
// not retried.
func surge(ctx context.Context, e *env) error {
	if err := e.start(ctx); err != nil {
		return err
	}
	if err := e.pool(ctx); err != nil {
		return err
	}
	if err := e.watch(ctx); err != nil {
		return err
	}
	if _, err := e.StartOperator(); err != nil {
		return err
	}
	for i, width := range []int{4, 16} {
		n, err := e.node(ctx, fmt.Sprintf("n%d", i+1))
		if err != nil {
			return err
		}
		cn, err := e.CiliumNode(ctx, n.Name)
		if err != nil {
			return err
		}
		e.check(len(cn.Spec.IPAM.Pool) == perBlock, fmt.Sprintf("addresses %s starts with", n.Name), "%d", len(cn.Spec.IPAM.Pool))
		failed, err := e.surgeOn(ctx, n, width)
		if err != nil {
			return err
		}
		others := len(otherReasons(failed))
		e.check(len(failed) == others, fmt.Sprintf("CNI ADDs of %d that found no address, %d at a time", surgePods, width), "%d", len(failed)-others)
		e.check(others <= mostOthers, "CNI ADDs that the agent refused for another reason", "%d", others)
		if cn, err = e.CiliumNode(ctx, n.Name); err != nil {
			return err
		}
		e.note("blocks at the end", "%d", len(cn.Spec.IPAM.PodCIDRs))
	}
	return e.judgeRules(ctx)
}

// surgePeer runs the same surge in Cilium's multi-pool mode with Cilium's own operator, all as
// shipped except for the block size. It gets one concession: each ADD waits for sandboxTime,
// as in this mode the agent first looks the pod up, and fails until its watch has delivered
// it.
func surgePeer(ctx context.Context, e *env) error {
	e.options.IPAM = "multi-pool"
	if err := e.start(ctx); err != nil {
		return err
	}
	_, err := e.StartCiliumOperator(ctx, fmt.Sprintf("--auto-create-cilium-pod-ip-pools=default=ipv4-cidrs:%s;ipv4-mask-size:%d", poolCIDR, blockSize))
	if err != nil {
		return err
	}
	e.sandboxTime = sandboxTime
	for i, width := range []int{4, 16} {
		n, err := e.node(ctx, fmt.Sprintf("n%d", i+1))
		if err != nil {
			return err
		}
		failed, err := e.surgeOn(ctx, n, width)
		if err != nil {
			return err
		}
		others := len(otherReasons(failed))
		e.note(fmt.Sprintf("Cilium multi-pool: CNI ADDs of %d that found no address, %d at a time; refused for another reason", surgePods, width), "%d; %d", len(failed)-others, others)
	}
	return nil
}

// surgeOn runs the surge on a node, then kills its agent, and returns the errors of the ADDs
// that failed.
func (e *env) surgeOn(ctx context.Context, n *bed.Node, width int) (failed []error, err error) {
	began := time.Now()
	pods, failed := e.runPods(ctx, n, "surge", surgePods, width)
	logAll(e, failed)
	e.note("the surge took; slowest ADD", "%.0f s; %.1f s", time.Since(began).Seconds(), slowestAdd(pods).Seconds())
	return failed, n.KillAgent(ctx)
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

// runPods runs count pods, at most width at a time. It returns those that came up, in the
// order of their names, and the errors of the others.
func (e *env) runPods(ctx context.Context, n *bed.Node, prefix string, count, width int) ([]*bed.Pod, []error) {
	pods, errs := make([]*bed.Pod, count), make([]error, count)
	inParallel(count, width, func(i int) {
		pods[i], errs[i] = e.runPod(ctx, n, fmt.Sprintf("%s-%s-%d", prefix, n.Name, i))
	})
	pods = slices.DeleteFunc(pods, func(p *bed.Pod) bool { return p == nil || !p.Address.IsValid() })
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	return pods, errs
}

// runPod creates, attaches and reports a pod.
func (e *env) runPod(ctx context.Context, n *bed.Node, name string) (*bed.Pod, error) {
	p, err := n.CreatePod(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, e.sandboxTime); err != nil {
		return nil, err
	}
	if err := p.Attach(ctx); err != nil {
		return nil, err
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

func slowestAdd(pods []*bed.Pod) time.Duration {
	var slowest time.Duration
	for _, p := range pods {
		slowest = max(slowest, p.Added.Sub(p.Created))
	}
	return slowest
}
