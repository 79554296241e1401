package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	appLabel = "app"
	// replicas is that of each ReplicaSet and StatefulSet, of which there is one for every two
	// nodes; each node has a pod of the DaemonSet too. Every aloneEvery-th node has a pod
	// without a controller.
	replicas, nodesOfSet = 12, 2
	aloneEvery           = 8
	alone                = "alone"
)

// controller is the kind of a pod's controller.
type controller string

const (
	replicaSet  controller = "ReplicaSet"
	statefulSet controller = "StatefulSet"
	daemonSet   controller = "DaemonSet"
)

// slot is one of the pods that a controller keeps.
type slot struct {
	kind   controller
	app    string
	least  int // of its budget; 0: it has none
	number int
	made   int // number of pods created for this slot
	node   string
}

// podName returns the name of the next pod. It is the same for all pods of a slot of a
// StatefulSet.
func (s *slot) podName() string {
	if s.kind == statefulSet {
		return fmt.Sprintf("%s-%d", s.app, s.number)
	}
	return fmt.Sprintf("%s-%d-%d", s.app, s.number, s.made)
}

func (s *slot) pod() *corev1.Pod {
	p := harness.BoundPod(s.node, s.podName(), map[string]string{appLabel: s.app})
	if s.least > 0 {
		p.Labels[leastLabel] = fmt.Sprint(s.least)
	}
	p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: string(s.kind), Name: s.app, UID: types.UID(s.app), Controller: ptr.To(true),
	}}
	return p
}

// workloads simulate the controllers of ReplicaSets, StatefulSets and DaemonSets, the
// scheduler, which binds their pods, and the controller of PodDisruptionBudgets.
type workloads struct {
	client  client.Client
	cache   ctrlcache.Cache
	nodes   int
	running sync.WaitGroup
	created atomic.Int64 // pods

	mu     sync.Mutex
	random *rand.Rand
	slots  map[string]*slot // by their current pod
	on     map[string]int   // number of pods, by node
}

// newWorkloads returns workloads that run until ctx ends; the caller waits for running.
func newWorkloads(ctx context.Context, cfg *rest.Config, c client.Client, s settings) (*workloads, error) {
	w := &workloads{
		client: c, nodes: s.Nodes, random: rand.New(rand.NewPCG(s.Seed, 20)), slots: map[string]*slot{}, on: map[string]int{},
	}
	var err error
	cfg.QPS = -1
	if w.cache, err = ctrlcache.New(cfg, ctrlcache.Options{
		Scheme: c.Scheme(), DefaultNamespaces: map[string]ctrlcache.Config{metav1.NamespaceDefault: {}},
	}); err != nil {
		return nil, err
	}
	pods, err := w.cache.GetInformer(ctx, &corev1.Pod{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, now any) {
			if pod, is := now.(*corev1.Pod); is && pod.DeletionTimestamp != nil {
				w.replace(ctx, pod.Name, false)
			}
		},
		DeleteFunc: func(last any) {
			if name, err := cache.DeletionHandlingObjectToName(last); err == nil {
				w.replace(ctx, name.Name, true)
			}
		},
	}); err != nil {
		return nil, err
	}
	w.running.Go(func() { _ = w.cache.Start(ctx) }) // it fails if it was started before
	w.running.Go(func() { w.allow(ctx) })
	return w, nil
}

// createAlone creates the pods without a controller.
func (w *workloads) createAlone(ctx context.Context) error {
	for i := 0; i < w.nodes; i += aloneEvery {
		if err := w.start(ctx, harness.BoundPod(nodeName(i), fmt.Sprintf("%s-%d", alone, i), map[string]string{appLabel: alone})); err != nil {
			return err
		}
	}
	return nil
}

// create creates all other pods, and the budgets.
func (w *workloads) create(ctx context.Context) error {
	var pods []*corev1.Pod
	for i := range w.nodes {
		w.fill(&slot{kind: daemonSet, app: "probe", number: i, node: nodeName(i)}, &pods)
	}
	for set := range w.nodes / nodesOfSet {
		of := slot{kind: replicaSet, app: fmt.Sprintf("web-%d", set), least: replicas - 3}
		switch set % 3 {
		case 1:
			of = slot{kind: statefulSet, app: fmt.Sprintf("store-%d", set), least: replicas - 1}
		case 2:
			of = slot{kind: replicaSet, app: fmt.Sprintf("batch-%d", set)}
		}
		if err := w.budget(ctx, of); err != nil {
			return err
		}
		for number := range replicas {
			s := of
			s.number, s.node = number, nodeName((set*replicas+number)%w.nodes)
			w.fill(&s, &pods)
		}
	}
	return harness.Parallel(ctx, len(pods), 16, func(ctx context.Context, i int) error { return w.start(ctx, pods[i]) })
}

// start creates a pod, which may already exist if a response was lost.
func (w *workloads) start(ctx context.Context, pod *corev1.Pod) error {
	err := w.client.Create(ctx, pod)
	if err == nil {
		w.created.Add(1)
	}
	return client.IgnoreAlreadyExists(err)
}

// fill creates the pod of a slot.
func (w *workloads) fill(s *slot, pods *[]*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots[s.podName()] = s
	w.on[s.node]++
	*pods = append(*pods, s.pod())
}

func (w *workloads) budget(ctx context.Context, of slot) error {
	if of.least == 0 {
		return nil
	}
	return w.client.Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: of.app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt(of.least)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: of.app}},
		},
	})
}

// replace creates the next pod of a slot, except for a DaemonSet on a node that choose picks:
// as soon as the old pod is being deleted, or for a StatefulSet once it is gone.
func (w *workloads) replace(ctx context.Context, name string, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.slots[name]
	if s == nil || s.kind == statefulSet && !gone {
		return
	}
	delete(w.slots, name)
	w.on[s.node]--
	if s.kind != daemonSet {
		s.node = w.choose()
	}
	w.on[s.node]++
	s.made++
	pod := s.pod()
	w.slots[pod.Name] = s
	w.running.Go(func() {
		_ = persist(ctx, func(ctx context.Context) error { return w.start(ctx, pod) }) // otherwise the pod is missing in the end
	})
}

// complete returns nil if each slot has its pod.
func (w *workloads) complete(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := w.client.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	missing := maps.Clone(w.slots)
	for i := range pods.Items {
		delete(missing, pods.Items[i].Name)
	}
	for name, s := range missing {
		return fmt.Errorf("%d pods are missing, such as %s of %s %s", len(missing), name, s.kind, s.app)
	}
	return nil
}

// choose returns the node with fewer pods of two random ones. The caller holds w.mu.
func (w *workloads) choose() string {
	a, b := nodeName(w.random.IntN(w.nodes)), nodeName(w.random.IntN(w.nodes))
	if w.on[b] < w.on[a] {
		return b
	}
	return a
}

// allow updates the status of all budgets.
func (w *workloads) allow(ctx context.Context) {
	for harness.Sleep(ctx, 200*time.Millisecond) == nil {
		list, pods := &policyv1.PodDisruptionBudgetList{}, &corev1.PodList{}
		if w.cache.List(ctx, list) != nil || w.cache.List(ctx, pods, client.UnsafeDisableDeepCopy) != nil {
			continue // it does not exist yet
		}
		of := map[string][]*corev1.Pod{}
		for i := range pods.Items {
			p := &pods.Items[i]
			of[p.Labels[appLabel]] = append(of[p.Labels[appLabel]], p)
		}
		for i := range list.Items {
			b := &list.Items[i]
			if status := statusOf(b, of[b.Name]); !sameStatus(&status, &b.Status) {
				b.Status = status
				_ = w.client.Status().Update(ctx, b) // a conflict: a pod was evicted meanwhile
			}
		}
	}
}

// deletedWithin is how long a pod in DisruptedPods counts as evicted while it is not deleted,
// as in kube-controller-manager: after that its eviction is considered aborted.
const deletedWithin = 2 * time.Minute

// statusOf returns the status of a budget, computed from all pods of its app. The API server
// adds pods to DisruptedPods before it deletes them.
func statusOf(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod) policyv1.PodDisruptionBudgetStatus {
	desired := int32(b.Spec.MinAvailable.IntValue())
	s := policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, DesiredHealthy: desired, ExpectedPods: int32(len(pods)), DisruptedPods: map[string]metav1.Time{},
	}
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			continue
		}
		if at, noted := b.Status.DisruptedPods[p.Name]; noted && p.CreationTimestamp.Before(&at) && time.Since(at.Time) < deletedWithin {
			s.DisruptedPods[p.Name] = at
			continue
		}
		if isReady(p) {
			s.CurrentHealthy++
		}
	}
	s.DisruptionsAllowed = max(0, s.CurrentHealthy-desired)
	return s
}

func sameStatus(a, b *policyv1.PodDisruptionBudgetStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration && a.DisruptionsAllowed == b.DisruptionsAllowed &&
		a.CurrentHealthy == b.CurrentHealthy && a.ExpectedPods == b.ExpectedPods && len(a.DisruptedPods) == len(b.DisruptedPods)
}
