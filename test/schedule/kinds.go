package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// The kinds of pods are tried on two nodes of a zone with a block each.
const (
	kindsZone, first, second = "kinds", "kinds-0", "kinds-1"
	oneNode                  = usable - agentsOwn
	inAll                    = 2 * oneNode
	staticPods               = 3
	urgent                   = "urgent"
)

// kinds returns the steps for pods of each kind, on full nodes whose pool has no block left.
func (b *bed) kinds() []step {
	return []step{
		{"static pods: the Node offers as many addresses less, and their mirrors request none", b.staticPods},
		{"all addresses are in use by pods; one more is pending", b.oneTooMany},
		{"containers restart in place, and an agent: no offer changes", b.restartInPlace},
		{"a static pod goes: the pending pod gets its address", b.staticPodGoes},
		{"a pod completes: another one gets its address", b.complete},
		{"a pod of a DaemonSet is pending on its full node, which gets the pool's next block for it", b.daemonPod},
		{"an urgent pod preempts another one on a full node, and gets its address", b.preempt},
	}
}

func (b *bed) createPods(ctx context.Context, prefix string, n int) error {
	for i := range n {
		if err := b.client.Create(ctx, newPod(fmt.Sprintf("%s-%d", prefix, i), kindsZone)); err != nil {
			return err
		}
	}
	return nil
}

// staticPods creates the pool, its nodes, and the mirror pods of static pods.
func (b *bed) staticPods(ctx context.Context) error {
	// Nodes keep no address free: a block is only for a pod that waits for one.
	tight := v1alpha1.ExpandPolicy{MinFree: ptr.To[int32](0), ThresholdPercent: ptr.To[int32](100)}
	if err := b.addZone(ctx, kindsZone, 2, 2, blockBits, tight); err != nil {
		return err
	}
	for i := range staticPods {
		pod := newPod(fmt.Sprintf("static-%d", i), "")
		pod.Spec.NodeName = first
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash", "kubernetes.io/config.hash": "hash"}
		if err := b.client.Create(ctx, pod); err != nil {
			return err
		}
		if n := requestOf(pod); n > 0 {
			return fmt.Errorf("%s requests %d addresses", pod.Name, n)
		}
	}
	return b.awaitOffer(ctx, first, oneNode-staticPods)
}

func (b *bed) awaitOffer(ctx context.Context, name string, want int) error {
	return harness.Until(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := b.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		if n := offerOf(node); n != want {
			return fmt.Errorf("%s offers %d addresses, not %d", name, n, want)
		}
		return nil
	})
}

func (b *bed) oneTooMany(ctx context.Context) error {
	if err := b.createPods(ctx, "first", inAll-staticPods+1); err != nil {
		return err
	}
	return b.awaitPods(ctx, inAll, 1)
}

// restartInPlace restarts containers of pods, and an agent.
func (b *bed) restartInPlace(ctx context.Context) error {
	if err := b.checker.Sync(ctx); err != nil {
		return err
	}
	before := [][]int{b.judge.offered(first), b.judge.offered(second)}
	pods := &corev1.PodList{}
	if err := b.client.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		was := p.DeepCopy()
		for j := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[j].RestartCount++
		}
		if err := b.client.Status().Patch(ctx, p, client.MergeFrom(was)); err != nil {
			return err
		}
	}
	if err := b.fleet.Machine(second).Restart(ctx); err != nil {
		return err
	}
	if err := errors.Join(b.fleet.Ready(ctx), b.awaitPods(ctx, inAll, 1), b.checker.Sync(ctx)); err != nil {
		return err
	}
	for i, name := range []string{first, second} {
		if now := b.judge.offered(name); !slices.Equal(now, before[i]) {
			return fmt.Errorf("%s offered %v before, and now %v", name, before[i], now)
		}
	}
	return nil
}

func (b *bed) staticPodGoes(ctx context.Context) error {
	if err := b.remove(ctx, newPod("static-0", ""), 1); err != nil {
		return err
	}
	return errors.Join(b.awaitOffer(ctx, first, oneNode-staticPods+1), b.awaitPods(ctx, inAll, 0))
}

// complete lets a pod succeed: its kubelet reports that once the sandbox is gone.
func (b *bed) complete(ctx context.Context) error {
	p := &corev1.Pod{}
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "first-0"}, p); err != nil {
		return err
	}
	next := newPod("after-another", kindsZone)
	next.Spec.NodeSelector[corev1.LabelHostname] = p.Spec.NodeName
	if err := errors.Join(b.client.Create(ctx, next), b.awaitPods(ctx, inAll, 1)); err != nil {
		return err
	}
	if err := b.fleet.Machine(p.Spec.NodeName).Del(ctx, p.Namespace, p.Name); err != nil {
		return err
	}
	before := p.DeepCopy()
	p.Status.Phase = corev1.PodSucceeded
	return errors.Join(b.client.Status().Patch(ctx, p, client.MergeFrom(before)), b.awaitPods(ctx, inAll, 0), b.remove(ctx, p, 0))
}

// daemonPod creates a pod as the DaemonSet controller does.
func (b *bed) daemonPod(ctx context.Context) error {
	pod := newPod("daemon", "")
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{second},
		}}}},
	}}}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	if err := errors.Join(b.client.Create(ctx, pod), b.awaitPods(ctx, inAll, 1)); err != nil {
		return err
	}
	return errors.Join(b.addCIDR(ctx, kindsZone, blockBits), b.awaitPods(ctx, inAll+1, 0), b.awaitOffer(ctx, second, oneNode+usable))
}

// preempt fills the nodes again, and creates a pod of a higher priority.
func (b *bed) preempt(ctx context.Context) error {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgent}, Value: 1000}
	if err := errors.Join(b.client.Create(ctx, class), b.createPods(ctx, "second", usable-1), b.awaitPods(ctx, inAll+usable, 0)); err != nil {
		return err
	}
	pod := newPod(urgent, kindsZone)
	pod.Spec.PriorityClassName = urgent
	err := harness.Until(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		err := b.client.Create(ctx, pod.DeepCopy())
		if apierrors.IsForbidden(err) { // the admission plugin has not seen the class yet
			return err
		}
		if err := client.IgnoreAlreadyExists(err); err != nil {
			return err
		}
		got := &corev1.Pod{}
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(pod), got); err != nil || !runs(got) {
			return errors.Join(err, fmt.Errorf("it is %s", got.Status.Phase))
		}
		return nil
	})
	return errors.Join(err, b.awaitPods(ctx, inAll+usable, 0))
}
