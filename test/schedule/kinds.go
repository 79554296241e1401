package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	kindsZone = "kinds"
	// oneNode is how many pods a node with one block has addresses for, kindsNodes the number
	// of nodes.
	oneNode, kindsNodes = usable - agentsOwn, 2
	staticPods          = 3
	urgent              = "urgent"
)

// step is the result of runKinds for one kind of pod.
type step struct {
	what string
	err  error
}

// tight makes nodes keep no address free: a block is only for a pod that waits for one.
func tight(pool *v1alpha1.PodIPPool) {
	pool.Spec.Expand = v1alpha1.ExpandPolicy{MinFree: ptr.To[int32](0), ThresholdPercent: ptr.To[int32](100)}
}

// kinds adds pods of each kind on two full nodes, whose pool has no block left.
func (t *trial) kinds(ctx context.Context) error {
	if err := t.addZone(ctx, kindsZone, kindsNodes, kindsNodes, tight); err != nil {
		return err
	}
	for _, s := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"static pods: the Node offers as many addresses less, and their mirrors request none", t.staticPods},
		{"all addresses are in use by pods; one more is pending", t.oneTooMany},
		{"containers restart in place, and an agent: no offer changes", t.restartInPlace},
		{"a static pod goes: the pending pod gets its address", t.staticPodGoes},
		{"a pod completes: another one gets its address", t.complete},
		{"a pod of a DaemonSet is pending on its full node, which gets the pool's next block for it", t.daemonPod},
		{"an urgent pod preempts another one on a full node, and gets its address", t.preempt},
	} {
		limit, cancel := limited(ctx, startTimeout)
		err := s.do(limit)
		cancel()
		t.steps = append(t.steps, step{s.what, err})
		if err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return t.deleteAll(ctx)
}

// createPods creates pods that both nodes suit.
func (t *trial) createPods(ctx context.Context, prefix string, n int) error {
	for i := range n {
		if err := t.cluster.client.Create(ctx, newPod(fmt.Sprintf("%s-%d", prefix, i))); err != nil {
			return err
		}
	}
	return nil
}

func newPod(name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry.example.com/app"}}
	return pod
}

// staticPods creates the mirror pods of static pods, as their kubelet does.
func (t *trial) staticPods(ctx context.Context) error {
	for i := range staticPods {
		pod := newPod(fmt.Sprintf("static-%d", i))
		pod.Spec.NodeName = "node-1"
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash", "kubernetes.io/config.hash": "hash"}
		if err := t.cluster.client.Create(ctx, pod); err != nil {
			return err
		}
		if seen, err := seePod(pod); err != nil || seen.pod.requests > 0 {
			return errors.Join(err, fmt.Errorf("%s requests %d addresses", pod.Name, seen.pod.requests))
		}
	}
	return t.awaitOffer(ctx, "node-1", oneNode-staticPods)
}

func (t *trial) awaitOffer(ctx context.Context, name string, want int) error {
	return harness.Until(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := t.cluster.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		if seen, err := seeNode(node); err != nil || seen.node.offer != want {
			return fmt.Errorf("%s offers %d addresses, not %d", name, seen.node.offer, want)
		}
		return nil
	})
}

// awaitPods waits until the given numbers of pods run, and are pending for lack of an address.
func (t *trial) awaitPods(ctx context.Context, running, pending int) error {
	return harness.Until(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := t.cluster.client.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		run, wait := 0, 0
		for i := range pods.Items {
			switch p := &pods.Items[i]; {
			case p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil:
				run++
			case lacksAddress(p):
				wait++
			}
		}
		if run != running || wait != pending {
			return fmt.Errorf("%d pods run and %d are pending, not %d and %d", run, wait, running, pending)
		}
		return t.cluster.ended()
	})
}

func lacksAddress(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
	})
}

// inAll is how many pods run once all addresses of the nodes are in use.
const inAll = kindsNodes * oneNode

func (t *trial) oneTooMany(ctx context.Context) error {
	if err := t.createPods(ctx, "first", inAll-staticPods+1); err != nil {
		return err
	}
	return t.awaitPods(ctx, inAll, 1)
}

// restartInPlace restarts containers of pods, and an agent. staticPodGoes judges what Nodes
// offer meanwhile, and changes it next.
func (t *trial) restartInPlace(ctx context.Context) error {
	t.restarted = time.Since(t.begin)
	pods := &corev1.PodList{}
	if err := t.cluster.client.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase != corev1.PodRunning {
			continue
		}
		before := p.DeepCopy()
		for j := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[j].RestartCount++
		}
		if err := t.cluster.client.Status().Patch(ctx, p, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	if err := t.cluster.fleet.Machine("node-2").Restart(ctx); err != nil {
		return err
	}
	if err := t.cluster.fleet.Ready(ctx); err != nil {
		return err
	}
	return t.awaitPods(ctx, inAll, 1)
}

func (t *trial) staticPodGoes(ctx context.Context) error {
	if err := t.load.remove(ctx, "static-0", 1); err != nil {
		return err
	}
	if err := t.awaitOffer(ctx, "node-1", oneNode-staticPods+1); err != nil {
		return err
	}
	if err := t.awaitPods(ctx, inAll, 0); err != nil {
		return err
	}
	const before = oneNode - staticPods
	if got := t.offersSince("node-1", t.restarted); slices.ContainsFunc(got, func(n int) bool { return n < before || n > before+1 }) {
		return fmt.Errorf("node-1 offered %v, not %d and %d", got, before, before+1)
	}
	if got := t.offersSince("node-2", t.restarted); slices.ContainsFunc(got, func(n int) bool { return n != oneNode }) {
		return fmt.Errorf("node-2 offered %v, not %d", got, oneNode)
	}
	return nil
}

// offersSince returns what a Node offered in its versions since a time of the run.
func (t *trial) offersSince(name string, since time.Duration) (offers []int) {
	history := t.record.changes()
	inOrder(history)
	for _, c := range history {
		if c.node != nil && c.name == name && c.at >= since {
			offers = append(offers, c.node.offer)
		}
	}
	return slices.Compact(offers)
}

// complete lets a pod of the load succeed: its kubelet reports that once the sandbox is gone.
func (t *trial) complete(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := t.cluster.client.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Annotations[corev1.MirrorPodAnnotationKey] == "" })
	p := &pods.Items[i]
	next := newPod("after-another")
	next.Spec.NodeSelector = map[string]string{corev1.LabelHostname: p.Spec.NodeName}
	if err := t.cluster.client.Create(ctx, next); err != nil {
		return err
	}
	if err := t.awaitPods(ctx, inAll, 1); err != nil {
		return err
	}
	if err := t.cluster.fleet.Machine(p.Spec.NodeName).Del(ctx, p.Namespace, p.Name); err != nil {
		return err
	}
	before := p.DeepCopy()
	p.Status.Phase = corev1.PodSucceeded
	if err := t.cluster.client.Status().Patch(ctx, p, client.MergeFrom(before)); err != nil {
		return err
	}
	if err := t.awaitPods(ctx, inAll, 0); err != nil {
		return err
	}
	return t.load.remove(ctx, p.Name, 0)
}

// daemonPod creates a pod as the DaemonSet controller does.
func (t *trial) daemonPod(ctx context.Context) error {
	const node = "node-2"
	pod := newPod("daemon")
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}}}},
	}}}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	if err := t.cluster.client.Create(ctx, pod); err != nil {
		return err
	}
	if err := t.awaitPods(ctx, inAll, 1); err != nil {
		return err
	}
	if err := t.people.addBlocks(ctx, kindsZone, 1); err != nil {
		return err
	}
	if err := t.awaitPods(ctx, inAll+1, 0); err != nil {
		return err
	}
	return t.awaitOffer(ctx, node, oneNode+usable)
}

// preempt fills the nodes again, and creates a pod of a higher priority.
func (t *trial) preempt(ctx context.Context) error {
	const all = inAll + usable
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgent}, Value: 1000}
	if err := t.cluster.client.Create(ctx, class); err != nil {
		return err
	}
	if err := t.createPods(ctx, "second", usable-1); err != nil {
		return err
	}
	if err := t.awaitPods(ctx, all, 0); err != nil {
		return err
	}
	pod := newPod(urgent)
	pod.Spec.PriorityClassName = urgent
	err := harness.Until(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		err := t.cluster.client.Create(ctx, pod.DeepCopy())
		if apierrors.IsForbidden(err) { // the admission plugin has not seen the class yet
			return err
		}
		return client.IgnoreAlreadyExists(err)
	})
	if err != nil {
		return err
	}
	err = harness.Until(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		if err := t.cluster.client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return nil
	})
	return errors.Join(err, t.awaitPods(ctx, all, 0))
}

// deleteAll deletes all pods.
func (t *trial) deleteAll(ctx context.Context) error {
	ctx, cancel := limited(ctx, startTimeout)
	defer cancel()
	return harness.Until(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		left, err := t.load.evict(ctx, 0, func(podSeen) bool { return true })
		if left > 0 {
			err = errors.Join(err, fmt.Errorf("%d pods are there", left))
		}
		return err
	})
}

// printSteps prints the results for each kind of pod.
func printSteps(to io.Writer, steps []step) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	for _, s := range steps {
		seen := "seen"
		if s.err != nil {
			seen = "NOT SEEN"
		}
		fmt.Fprintf(w, "%s\t%s\n", seen, s.what)
	}
	_ = w.Flush()
}
