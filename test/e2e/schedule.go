//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// scheduledNodes with 34 blocks have 1,000 addresses for pods: of the 30 in each block two
	// per node are the agent's, or kept for it.
	scheduledNodes, exactBlocks = 10, 34
	agentsOwn                   = 2
	scheduledPods               = exactBlocks*perBlock - scheduledNodes*agentsOwn
	// warmUpPods let agents compile what their first pods need.
	warmUpPods = 100
	// mostPods is how many pods a node accepts, addsAtATime how many it attaches at a time.
	mostPods, addsAtATime = 1000, 4
	// atMost limits how much longer it may take with exactly as many addresses as pods.
	atMost          = 1.2
	scheduleTimeout = 15 * time.Minute
)

// exactCIDRs have 34 blocks, plentyCIDR at least as many again.
var exactCIDRs, plentyCIDR = []string{"100.66.224.0/22", "100.66.228.0/26"}, "100.66.232.0/21"

// schedule lets the real kube-scheduler bind 1,000 pods that request an address, and real
// agents attach them: with exactly as many addresses in the pool, and with plenty.
func schedule(ctx context.Context, e *env) error {
	nodes, err := e.startScheduling(ctx)
	if err != nil {
		return err
	}
	k := &kubelets{env: e, nodes: nodes, working: map[string]chan struct{}{}, known: map[string]bool{}}
	for name := range nodes {
		k.working[name] = make(chan struct{}, addsAtATime)
	}
	if _, err := k.burst(ctx, "warm-up", warmUpPods); err != nil {
		return err
	}
	exact, err := k.burst(ctx, "exact", scheduledPods)
	if err != nil {
		return err
	}
	e.note(fmt.Sprintf("%d pods on exactly %d addresses, all running after", scheduledPods, scheduledPods), "%.0f s", exact.Seconds())
	if err := e.editPool(ctx, "all", addCIDR(plentyCIDR)); err != nil {
		return err
	}
	plenty, err := k.burst(ctx, "plenty", scheduledPods)
	if err != nil {
		return err
	}
	e.note("the same pods with plenty of addresses", "%.0f s", plenty.Seconds())
	ratio := exact.Seconds() / plenty.Seconds()
	e.check(ratio <= atMost, fmt.Sprintf("as many addresses as pods take longer by, at most %.1f times", atMost), "%.2f times", ratio)
	e.check(k.lacked == 0, "CNI ADDs that found no address", "%d", k.lacked)
	e.note("CNI ADDs; tried again for another reason", "%d; %d", k.added, k.others)
	return e.judgeRules(ctx)
}

// startScheduling starts a cluster of nodes that offer addresses.
func (e *env) startScheduling(ctx context.Context) (map[string]*bed.Node, error) {
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	if err := e.Client.Create(ctx, zonePool("all", "", 0, blockSize, exactCIDRs...)); err != nil {
		return nil, fmt.Errorf("create pool: %w", err)
	}
	if err := e.watch(ctx); err != nil {
		return nil, err
	}
	// Blocks are returned soon after a burst. No kubelet restarts an operator that has lost
	// its Lease to the load.
	_, err := e.StartOperator("--leader-elect-lease-duration=2m", "--scheduling-families=ipv4", "--reclaim-idle-for=5s", "--cooldown=2s", "--reclaims-per-minute=0", "--reclaims-per-minute-per-pool=0")
	if err != nil {
		return nil, err
	}
	nodes := map[string]*bed.Node{}
	for i := range scheduledNodes {
		n, err := e.node(ctx, fmt.Sprintf("n%d", i+1))
		if err != nil {
			return nil, err
		}
		if err := n.TakePods(ctx, mostPods); err != nil {
			return nil, err
		}
		nodes[n.Name] = n
	}
	return nodes, e.StartScheduler()
}

// kubelets attaches the pods that the scheduler binds.
type kubelets struct {
	*env
	nodes   map[string]*bed.Node
	working map[string]chan struct{} // by node: its current ADDs

	mu    sync.Mutex
	known map[string]bool // pods that were seen bound, of all bursts
	pods  []*bed.Pod      // running pods
	// added and lacked count ADDs that succeeded, and that found no address; others counts
	// those that failed for another reason.
	added, lacked, others int
}

// burst creates pods at once, waits until all run, and deletes them. Once the nodes have
// returned what they got, it returns how long it took until all ran.
func (k *kubelets) burst(ctx context.Context, name string, pods int) (time.Duration, error) {
	bursting, cancel := context.WithTimeoutCause(ctx, scheduleTimeout, fmt.Errorf("not within %s", scheduleTimeout))
	defer cancel()
	bound, err := k.Client.Watch(bursting, &corev1.PodList{}, client.InNamespace(metav1.NamespaceDefault))
	if err != nil {
		return 0, err
	}
	defer bound.Stop()
	go func() {
		for event := range bound.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				k.see(bursting, pod)
			}
		}
	}()
	began := time.Now()
	err = harness.Parallel(bursting, pods, addsAtATime, func(ctx context.Context, i int) error {
		return k.CreateWaitingPod(ctx, fmt.Sprintf("%s-%d", name, i))
	})
	if err != nil {
		return 0, err
	}
	err = harness.Until(bursting, 50*time.Millisecond, func(context.Context) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.pods) < pods {
			return fmt.Errorf("%s: %d of %d pods run", name, len(k.pods), pods)
		}
		return nil
	})
	took := time.Since(began)
	if err != nil {
		return took, err
	}
	k.Logf("%s: %d pods in %.0f s", name, pods, took.Seconds())
	return took, errors.Join(k.deletePods(ctx, k.pods), k.forget(ctx))
}

// see attaches a pod once it is bound.
func (k *kubelets) see(ctx context.Context, pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[pod.Spec.NodeName]
	if n == nil || k.known[pod.Name] {
		return
	}
	k.known[pod.Name] = true
	go k.attach(ctx, n.BoundPod(pod))
}

// attach retries until the pod has its network, as a kubelet does.
func (k *kubelets) attach(ctx context.Context, p *bed.Pod) {
	working := k.working[p.Node().Name]
	for ctx.Err() == nil {
		working <- struct{}{}
		err := p.Attach(ctx)
		if err == nil {
			err = p.Report(ctx)
		}
		<-working
		k.count(p, err)
		if err == nil {
			return
		}
		k.Logf("%v", err)
		if p, err = k.nextSandbox(ctx, p); err != nil {
			return // ctx has ended
		}
	}
}

func (k *kubelets) count(p *bed.Pod, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil:
		k.added++
		k.pods = append(k.pods, p)
	case len(otherReasons([]error{err})) == 0:
		k.lacked++
	default:
		k.others++
	}
}

// forget waits until each node has only the block in which its agent has addresses.
func (k *kubelets) forget(ctx context.Context) error {
	k.pods = nil
	ctx, cancel := context.WithTimeoutCause(ctx, scheduleTimeout, fmt.Errorf("blocks were not returned within %s", scheduleTimeout))
	defer cancel()
	return harness.Until(ctx, time.Second, func(ctx context.Context) error {
		blocks := &v1alpha1.PodIPBlockList{}
		if err := k.Client.List(ctx, blocks); err != nil {
			return err
		}
		if n := len(blocks.Items); n > len(k.nodes) {
			return fmt.Errorf("there are %d blocks still", n)
		}
		return nil
	})
}
