package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KubeletOptions configure a Kubelet.
type KubeletOptions struct {
	// Workers is the number of pods that are processed concurrently. Zero: 16.
	Workers int
	// Retry is the wait after a failed CNI call or write. Zero: 10 s, as kubelet
	// has it.
	Retry time.Duration
	// OnAdd, if set, is called with the outcome of each CNI ADD for a pod, in the version
	// that the kubelet has seen. It must not block, nor change the pod.
	OnAdd func(pod *corev1.Pod, err error)
}

// Kubelet stands in for the kubelets of all nodes with attached agents: pods bound there get their
// addresses by CNI ADD and run; pods that are being deleted, or have finished, release them by CNI
// DEL.
type Kubelet struct {
	client client.WithWatch
	opts   KubeletOptions
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu     sync.Mutex
	agents map[string]*Agent
	// sandboxes are the pods that have been added.
	sandboxes map[types.NamespacedName]sandbox
	store     cache.Store
	synced    func() bool
}

// sandbox belongs to one pod object: a later pod of the same name needs its own.
type sandbox struct {
	uid     types.UID
	agent   *Agent
	v4, v6  netip.Addr
	started metav1.Time
}

// NewKubelet returns a Kubelet; Run makes it work.
func NewKubelet(c client.WithWatch, opts KubeletOptions) *Kubelet {
	if opts.Workers == 0 {
		opts.Workers = 16
	}
	if opts.Retry == 0 {
		opts.Retry = 10 * time.Second
	}
	if opts.OnAdd == nil {
		opts.OnAdd = func(*corev1.Pod, error) {}
	}
	return &Kubelet{
		client:    c,
		opts:      opts,
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		agents:    map[string]*Agent{},
		sandboxes: map[types.NamespacedName]sandbox{},
	}
}

// Attach passes the pods bound to the agent's node to it.
func (k *Kubelet) Attach(a *Agent) {
	k.mu.Lock()
	k.agents[a.Name()] = a
	store := k.store
	k.mu.Unlock()
	if store == nil {
		return
	}
	for _, obj := range store.List() {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName == a.Name() {
			k.queue.Add(client.ObjectKeyFromObject(pod))
		}
	}
}

// HasPod reports whether the pod exists, as far as the kubelet knows: for Options.PodExists.
func (k *Kubelet) HasPod(pod types.NamespacedName) bool {
	k.mu.Lock()
	store, synced := k.store, k.synced
	k.mu.Unlock()
	if store == nil || !synced() {
		return true
	}
	_, exists, err := store.GetByKey(pod.String())
	return exists || err != nil
}

// Run works until ctx ends.
func (k *Kubelet) Run(ctx context.Context) {
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			namespace, name, _ := cache.SplitMetaNamespaceKey(key)
			k.queue.Add(types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	bound := client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("spec.nodeName", "")}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: listWatch(k.client, func() client.ObjectList { return &corev1.PodList{} }, bound),
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }, DeleteFunc: enqueue,
		},
		Transform: stripManagedFields,
	})
	k.mu.Lock()
	k.store, k.synced = store, informer.HasSynced
	k.mu.Unlock()

	var workers sync.WaitGroup
	defer workers.Wait()
	defer k.queue.ShutDown()
	workers.Go(func() { informer.RunWithContext(ctx) })
	for range k.opts.Workers {
		workers.Go(func() { k.work(ctx) })
	}
	<-ctx.Done()
}

func (k *Kubelet) work(ctx context.Context) {
	for {
		key, stop := k.queue.Get()
		if stop {
			return
		}
		if err := k.sync(ctx, key); err != nil {
			k.queue.AddAfter(key, k.opts.Retry)
		}
		k.queue.Done(key)
	}
}

// sync brings one pod to its desired state. The queue ensures that only one sync of a pod runs
// at a time.
func (k *Kubelet) sync(ctx context.Context, key types.NamespacedName) error {
	k.mu.Lock()
	store, box, has := k.store, k.sandboxes[key], k.sandboxes[key].agent != nil
	k.mu.Unlock()
	obj, exists, err := store.GetByKey(key.String())
	if err != nil {
		return err
	}
	pod, _ := obj.(*corev1.Pod)
	finished := !exists || pod.DeletionTimestamp != nil ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if has && (finished || pod.UID != box.uid) {
		if err := k.teardown(ctx, key, box); err != nil {
			return err
		}
		has = false
	}
	switch {
	case !exists:
		return nil
	case pod.DeletionTimestamp != nil:
		return k.remove(ctx, pod)
	case finished:
		return nil
	case has:
		return k.writeStatus(ctx, pod, box)
	}
	return k.start(ctx, pod)
}

func (k *Kubelet) teardown(ctx context.Context, key types.NamespacedName, box sandbox) error {
	if err := box.agent.Del(ctx, key.Namespace, key.Name); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sandboxes, key)
	return nil
}

// remove deletes a pod that has terminated, if its node is ours. An agent's DaemonSet recreates
// its pod, and the agent starts again with it.
func (k *Kubelet) remove(ctx context.Context, pod *corev1.Pod) error {
	k.mu.Lock()
	agent := k.agents[pod.Spec.NodeName]
	k.mu.Unlock()
	if agent == nil {
		return nil
	}
	err := k.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	if err == nil && isAgentPod(pod) {
		agent.down()
	}
	return client.IgnoreNotFound(err)
}

func (k *Kubelet) start(ctx context.Context, pod *corev1.Pod) error {
	key := client.ObjectKeyFromObject(pod)
	k.mu.Lock()
	agent := k.agents[pod.Spec.NodeName]
	k.mu.Unlock()
	if agent == nil || isAgentPod(pod) {
		return nil
	}
	box := sandbox{uid: pod.UID, agent: agent, started: metav1.Now()}
	if !pod.Spec.HostNetwork {
		var err error
		box.v4, box.v6, err = agent.Add(ctx, pod)
		k.opts.OnAdd(pod, err)
		if err != nil {
			return err
		}
	}
	k.mu.Lock()
	k.sandboxes[key] = box
	k.mu.Unlock()
	return k.writeStatus(ctx, pod, box)
}

// isAgentPod reports whether an Agent writes the pod's status itself.
func isAgentPod(pod *corev1.Pod) bool {
	return pod.Namespace == agentNamespace && pod.Labels["k8s-app"] == "cilium"
}

// writeStatus reports the pod as running with its sandbox's addresses, unless its status
// already does.
func (k *Kubelet) writeStatus(ctx context.Context, cached *corev1.Pod, box sandbox) error {
	pod := cached.DeepCopy()
	status := &pod.Status
	status.Phase, status.StartTime = corev1.PodRunning, &box.started
	status.PodIP, status.PodIPs, status.ContainerStatuses = "", nil, nil
	for _, addr := range []netip.Addr{box.v4, box.v6} {
		if addr.IsValid() {
			status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: addr.String()})
		}
	}
	if len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
	if cached.Status.Phase == corev1.PodRunning && slices.Equal(cached.Status.PodIPs, status.PodIPs) {
		return nil
	}
	SetConditions(pod, true)
	yes := true
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: &yes,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: box.started}},
		})
	}
	// A merge patch without precondition: no other client writes these fields.
	if err := k.client.Status().Patch(ctx, pod, client.MergeFrom(cached)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
