package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// The target number of pods: basePods, and perNode more for each node.
	basePods, perNode = 60, 2
	// burst is the most pods that are created on a node at once. In a small run it suffices
	// for a second block.
	burst, smallBurst = 30, 16
	// loaders create and delete pods in parallel, each at this interval; a small run has one.
	loaders              = 3
	loadEvery, smallLoad = 500 * time.Millisecond, 1500 * time.Millisecond
	podLabel             = "chaos"
)

// load simulates users who create and delete pods. It does not retry writes that fail while the
// API server is down.
type load struct {
	client client.Client
	mode   mode
	most   int // for one node; 0: any number
	// loaders create pods at this interval, at most burst at once.
	loaders, burst int
	every          time.Duration

	mu     sync.Mutex
	random *rand.Rand
	pods   map[string][]string // by node that may get pods
	coming map[string]int      // being created, by node
	count  int
	made   int
	// created and deleted count pods.
	created, deleted atomic.Int64
}

func newLoad(c client.Client, s settings) *load {
	l := &load{
		client: c, mode: s.mode, most: s.mode.mostPods(), loaders: loaders, burst: burst, every: loadEvery, random: rand.New(rand.NewPCG(s.seed, 2)),
		pods: map[string][]string{}, coming: map[string]int{},
	}
	if s.small {
		l.loaders, l.burst, l.every = 1, smallBurst, smallLoad
	}
	return l
}

// add lets a node get pods until remove is called. From then on load does not delete its pods
// either.
func (l *load) add(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods[node] = nil
}

func (l *load) remove(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count -= len(l.pods[node])
	delete(l.pods, node)
}

// run creates and deletes pods until ctx ends.
func (l *load) run(ctx context.Context) {
	var all sync.WaitGroup
	for range l.loaders {
		all.Go(func() { l.one(ctx) })
	}
	all.Wait()
}

func (l *load) one(ctx context.Context) {
	for harness.Sleep(ctx, l.every) == nil {
		node, names := l.next()
		if names != nil {
			l.create(ctx, node, names)
			continue
		}
		for _, name := range l.take(node) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
			if l.client.Delete(ctx, pod, client.GracePeriodSeconds(1)) == nil {
				l.deleted.Add(1)
			}
		}
	}
}

// next picks a node, and the names of pods to create there. Without names, pods are deleted.
func (l *load) next() (node string, names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var full, all []string
	for n, pods := range l.pods {
		all = append(all, n)
		if len(pods) > 0 {
			full = append(full, n)
		}
	}
	slices.Sort(all)
	slices.Sort(full)
	if len(all) == 0 {
		return "", nil
	}
	if l.count > basePods+perNode*len(all) || len(full) > 0 && l.random.IntN(3) == 0 {
		node = full[l.random.IntN(len(full))]
		if other := full[l.random.IntN(len(full))]; len(l.pods[other]) > len(l.pods[node]) {
			node = other
		}
		return node, nil
	}
	node = all[l.random.IntN(len(all))]
	// Adding pods to nodes that have some makes them need more blocks.
	if len(full) > 0 && l.random.IntN(2) == 0 {
		node = full[l.random.IntN(len(full))]
	}
	return node, l.names(l.fitting(node, 1+l.random.IntN(l.burst)))
}

// fitting limits n to the number of pods that may be created on a node, and counts them as
// coming. The caller holds l.mu.
func (l *load) fitting(node string, n int) int {
	if l.most > 0 {
		n = max(0, min(n, l.most-len(l.pods[node])-l.coming[node]))
	}
	l.coming[node] += n
	return n
}

// names returns new names. The caller holds l.mu.
func (l *load) names(n int) []string {
	var out []string
	for range n {
		l.made++
		out = append(out, fmt.Sprintf("pod-%d", l.made))
	}
	return out
}

// take removes most of a node's pods from the records.
func (l *load) take(node string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.pods[node]
	stay := l.random.IntN(3)
	if stay > len(all) {
		stay = 0
	}
	l.pods[node] = slices.Clone(all[:stay])
	l.count -= len(all) - stay
	return all[stay:]
}

// create creates pods that are bound to a node, as a scheduler would.
func (l *load) create(ctx context.Context, node string, names []string) {
	for _, name := range names {
		pod := harness.BoundPod(node, name, map[string]string{podLabel: ""})
		pod.Annotations = l.mode.annotationsOf(name)
		err := l.client.Create(ctx, pod)
		l.mu.Lock()
		l.coming[node]--
		if _, there := l.pods[node]; err == nil && there {
			l.pods[node] = append(l.pods[node], name)
			l.count++
		}
		l.mu.Unlock()
		if err == nil {
			l.created.Add(1)
		}
	}
}

// surge creates pods on a few nodes at once, so that the operator has writes in
// flight.
func (l *load) surge(ctx context.Context) {
	var all sync.WaitGroup
	for range 4 {
		l.mu.Lock()
		nodes := slices.Sorted(maps.Keys(l.pods))
		if len(nodes) == 0 {
			l.mu.Unlock()
			break
		}
		node := nodes[l.random.IntN(len(nodes))]
		names := l.names(l.fitting(node, l.burst))
		l.mu.Unlock()
		all.Go(func() { l.create(ctx, node, names) })
	}
	all.Wait()
}

// persist retries a user's action until it succeeds, as the API server may be down.
func persist(ctx context.Context, do func(context.Context) error) error {
	for {
		err := do(ctx)
		if err == nil || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
			return err
		}
		if harness.Sleep(ctx, 500*time.Millisecond) != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
