package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/fleet"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

const (
	release = "cilium-pool-operator"
	// updateRate is the interval of agents' reports; real agents take 15 s. It is short so that
	// nodes return blocks within a run.
	updateRate = 2 * time.Second
	cooldown   = 2 * time.Second
	// schedulerConfig lifts the limit of 50 requests per second.
	schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %s, qps: 10000, burst: 10000}
`
)

// bed is a control plane with the scheduler, the operator, simulated nodes, and people who
// change them.
type bed struct {
	*controlplane.Cluster
	settings
	client   client.WithWatch
	fleet    *fleet.Fleet
	operator *process.Process
	checker  *invariant.Checker
	judge    *judge
	// alive is the context of background work, and parts that work; fail ends the run.
	alive context.Context
	parts sync.WaitGroup
	fail  context.CancelCauseFunc

	// want is the number of pods that load keeps. If churning, it replaces some all the time.
	want, changes atomic.Int64
	churning      atomic.Bool

	mu            sync.Mutex
	random        *rand.Rand
	nodes         map[string]string         // zones by node
	cidrs         map[string][]netip.Prefix // by zone
	joined, added int                       // number of nodes and CIDRs so far
}

// startBed starts everything, with the objects and rights of the chart.
func startBed(ctx context.Context, s settings, fail context.CancelCauseFunc) (_ *bed, err error) {
	if err := os.RemoveAll(s.dir); err != nil {
		return nil, err
	}
	b := &bed{settings: s, alive: ctx, fail: fail, random: rand.New(rand.NewPCG(1, 1)), nodes: map[string]string{}, cidrs: map[string][]netip.Prefix{}, judge: newJudge()}
	b.churning.Store(true)
	if b.Cluster, err = controlplane.Start(ctx, controlplane.Options{Dir: s.dir, BinDir: s.binDir}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Stop())
		}
	}()
	if b.client, err = harness.NewClient(b.Config()); err != nil {
		return nil, err
	}
	b.fleet = fleet.New(b.client, fleet.Options{Retry: time.Second, Workers: 64, OnExhausted: b.judge.missed, Agent: agent.Options{
		Health: true, UpdateRate: updateRate, PollInterval: 500 * time.Millisecond,
	}})
	b.parts.Go(func() { b.fleet.Run(ctx) })
	b.checker, err = invariant.Watch(ctx, b.Config(), invariant.Options{Cooldown: cooldown, Agents: b.fleet.Held, OnChange: b.judge.step})
	if err != nil {
		return nil, err
	}
	chart, err := harness.RenderChart(ctx, harness.Helm4, "--set", "scheduling.enabled=true", "--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.apply(ctx, chart), b.startPrograms(ctx)); err != nil {
		return nil, err
	}
	for _, zone := range zones { // 2.7 blocks or more for a node
		if err := b.addZone(ctx, zone, s.size/2, (s.size+5)/6); err != nil {
			return nil, err
		}
	}
	b.parts.Go(func() { b.load(ctx) })
	return b, nil
}

// apply creates the chart's rights and the policies that make pods request addresses.
func (b *bed) apply(ctx context.Context, chart []*unstructured.Unstructured) error {
	kinds := []string{
		"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	}
	for _, o := range chart {
		if !slices.Contains(kinds, o.GetKind()) {
			continue
		}
		if err := b.client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// startPrograms starts the scheduler, and the operator with the rights of the chart and
// durations that let nodes return blocks within a run. They end with this process.
func (b *bed) startPrograms(ctx context.Context) error {
	path := filepath.Join(b.dir, "scheduler.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, schedulerConfig, filepath.Join(b.dir, "kubeconfig")), 0o600); err != nil {
		return err
	}
	cfg, err := b.ConfigFor(ctx, metav1.NamespaceSystem, release)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(b.dir, "operator.kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, cfg); err != nil {
		return err
	}
	if _, err = process.Start(process.Command{Name: "kube-scheduler", Dir: b.dir, Args: []string{
		filepath.Join(b.binDir, "kube-scheduler"), "--config=" + path, "--secure-port=0",
	}}); err != nil {
		return err
	}
	b.operator, err = process.Start(process.Command{Name: "operator", Dir: b.dir, Args: []string{
		filepath.Join(b.binDir, "cilium-pool-operator"), "--kubeconfig=" + kubeconfig, "--leader-elect=false", "--scheduling-families=ipv4",
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--reclaim-idle-for=5s", "--ack-hold=500ms", "--ack-timeout=" + (2 * updateRate).String(), "--agent-settle-time=1s",
		"--cooldown=" + cooldown.String(), "--node-gone-cooldown=4s", "--reclaims-per-minute=0", "--reclaims-per-minute-per-pool=0",
	}})
	return err
}

// ended returns an error if the operator has exited by itself.
func (b *bed) ended() error {
	if !b.operator.Running() {
		return fmt.Errorf("the operator ended by itself; its log ends:\n%s", b.operator.LogTail())
	}
	return nil
}

// awaitOffers waits until pods request an address and all nodes offer some.
func (b *bed) awaitOffers(ctx context.Context) error {
	if err := b.fleet.Ready(ctx); err != nil {
		return err
	}
	dry := client.NewDryRunClient(b.client)
	return harness.Until(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		p, nodes := harness.BoundPod("", "sample", nil), &corev1.NodeList{}
		if err := errors.Join(dry.Create(ctx, p), b.client.List(ctx, nodes)); err != nil {
			return err
		}
		if requestOf(p) == 0 {
			return errors.New("pods request no address yet")
		}
		for i := range nodes.Items {
			if offerOf(&nodes.Items[i]) <= 0 {
				return fmt.Errorf("node %s offers no address yet", nodes.Items[i].Name)
			}
		}
		return b.ended()
	})
}

// load creates and deletes pods until ctx ends, so that there are as many as wanted.
func (b *bed) load(ctx context.Context) {
	for made := 0; ctx.Err() == nil; _ = harness.Sleep(ctx, 200*time.Millisecond) {
		want := int(b.want.Load())
		pods := &corev1.PodList{}
		if want == 0 || b.client.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)) != nil {
			continue
		}
		there := len(pods.Items)
		running := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !runs(&p) })
		gone := max(0, there-want)
		if b.churning.Load() && len(running) > want*9/10 {
			gone = max(gone, want/20)
		}
		b.mu.Lock()
		b.random.Shuffle(len(running), func(i, j int) { running[i], running[j] = running[j], running[i] })
		var todo []func(context.Context) error
		for i := range min(gone, len(running)) {
			todo = append(todo, func(ctx context.Context) error { return b.remove(ctx, &running[i]) })
		}
		for range want - there {
			made++
			pod := harness.BoundPod("", fmt.Sprintf("pod-%d", made), nil)
			if b.random.IntN(5) == 0 { // a fifth of the pods must run in a zone
				pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zones[b.random.IntN(len(zones))]}
			}
			todo = append(todo, func(ctx context.Context) error { return b.client.Create(ctx, pod) })
		}
		b.mu.Unlock()
		if err := harness.Parallel(ctx, len(todo), 16, func(ctx context.Context, i int) error { return todo[i](ctx) }); err != nil && ctx.Err() == nil {
			b.fail(fmt.Errorf("load: %w", err))
		}
	}
}

// remove deletes a pod, after its kubelet has freed its address.
func (b *bed) remove(ctx context.Context, pod *corev1.Pod) error {
	return client.IgnoreNotFound(b.client.Delete(ctx, pod, client.GracePeriodSeconds(1)))
}

// evict deletes the chosen pods, and waits until they are gone.
func (b *bed) evict(ctx context.Context, chosen func(*corev1.Pod) bool) error {
	return harness.Until(ctx, 300*time.Millisecond, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := b.client.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		left := 0
		for i := range pods.Items {
			p := &pods.Items[i]
			if !chosen(p) {
				continue
			}
			left++
			if p.DeletionTimestamp != nil {
				continue
			}
			if err := b.remove(ctx, p); err != nil {
				return err
			}
		}
		if left > 0 {
			return fmt.Errorf("%d pods are there", left)
		}
		return nil
	})
}

func runs(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
}

// podsAre returns nil if these numbers of pods run, and are pending for lack of an address.
func (b *bed) podsAre(ctx context.Context, running, pending int) error {
	pods := &corev1.PodList{}
	if err := b.client.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	run, wait := 0, 0
	for i := range pods.Items {
		p := &pods.Items[i]
		if runs(p) {
			run++
		}
		if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
		}) {
			wait++
		}
	}
	if run != running || wait != pending {
		return fmt.Errorf("%d pods run and %d are pending, not %d and %d", run, wait, running, pending)
	}
	return nil
}

// offerOf returns the number of addresses that a Node offers; -1 if it lacks the resource.
func offerOf(n *corev1.Node) int {
	quantity, ok := n.Status.Allocatable[v1alpha1.IPv4Resource]
	if !ok {
		return -1
	}
	return int(quantity.Value())
}

// requestOf returns the number of addresses that a pod requests.
func requestOf(p *corev1.Pod) (n int) {
	for _, c := range p.Spec.Containers {
		quantity := c.Resources.Requests[v1alpha1.IPv4Resource]
		n += int(quantity.Value())
	}
	return n
}
