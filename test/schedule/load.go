package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// writers is how many goroutines create pods, and how many delete them.
	writers = 24
	// zonedPods is the share of pods that must run in one of the zones, in percent.
	zonedPods = 20
	// runningShare is the share of the wanted pods that must run before any is deleted, in
	// percent.
	runningShare = 95
	// idle is how long a writer waits if it has nothing to do.
	idle = 2 * time.Millisecond
)

// load creates pods for the scheduler to bind, and deletes those that run.
type load struct {
	client client.Client
	// deletes limits how many pods are deleted per second.
	deletes flowcontrol.RateLimiter

	mu     sync.Mutex
	random *rand.Rand
	// want is how many pods there should be.
	want int
	// zone is where all of them must run; empty: a share of them in one or the other.
	zone string
	// churning means that some pods are deleted while most of them run, so that others take
	// their addresses.
	churning bool
	made     int
	// there are the pods that exist, or are about to, in their last seen version.
	there   map[string]podSeen
	running []string       // and not being deleted
	at      map[string]int // their index in running
	bound   int            // so far
}

func newLoad(c client.Client, seed uint64, rate int) *load {
	l := &load{
		client: c, random: rand.New(rand.NewPCG(seed, 1)), there: map[string]podSeen{}, at: map[string]int{},
		deletes: flowcontrol.NewFakeAlwaysRateLimiter(),
	}
	if rate > 0 {
		l.deletes = flowcontrol.NewTokenBucketRateLimiter(float32(rate), rate)
	}
	return l
}

// keep sets how many pods there should be, and whether they are replaced all the time.
func (l *load) keep(want int, churning bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.want, l.churning = want, churning
}

// in makes all pods run in a zone from now on.
func (l *load) in(zone string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.zone = zone
}

// saw records a version of a pod.
func (l *load) saw(name string, p podSeen, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.node != "" && l.there[name].node == "" && !gone {
		l.bound++
	}
	l.there[name] = p
	_, listed := l.at[name]
	switch {
	case gone:
		delete(l.there, name)
		l.unlist(name)
	case p.leaving || p.ended:
		l.unlist(name)
	case p.running && !listed:
		l.at[name] = len(l.running)
		l.running = append(l.running, name)
	}
}

// unlist removes a pod from running. The caller holds l.mu.
func (l *load) unlist(name string) {
	i, listed := l.at[name]
	if !listed {
		return
	}
	last := len(l.running) - 1
	l.running[i] = l.running[last]
	l.at[l.running[i]] = i
	l.running = l.running[:last]
	delete(l.at, name)
}

// counts returns how many pods exist, how many of them run, and how many were bound so far.
func (l *load) counts() (there, running, bound int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.there), len(l.running), l.bound
}

// hosting returns a node on which a pod runs, if there is one.
func (l *load) hosting() (node string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.running) == 0 {
		return "", false
	}
	return l.there[l.running[l.random.IntN(len(l.running))]].node, true
}

// evict deletes the chosen pods with a grace period in seconds, and returns how many of them
// still exist.
func (l *load) evict(ctx context.Context, grace int64, chosen func(podSeen) bool) (int, error) {
	l.mu.Lock()
	var names []string
	left := 0
	for name, p := range l.there {
		if !chosen(p) {
			continue
		}
		left++
		if !p.leaving || grace == 0 {
			names = append(names, name)
		}
	}
	l.mu.Unlock()
	for _, name := range names {
		if err := l.remove(ctx, name, grace); err != nil {
			return left, err
		}
	}
	return left, nil
}

// run works until ctx ends, or a call fails.
func (l *load) run(ctx context.Context) error {
	return harness.Parallel(ctx, 2*writers, 2*writers, func(ctx context.Context, i int) error {
		step := l.create
		if i%2 == 1 {
			step = l.delete
		}
		for ctx.Err() == nil {
			if did, err := step(ctx); err != nil && ctx.Err() == nil {
				return err
			} else if !did {
				_ = harness.Sleep(ctx, idle)
			}
		}
		return nil
	})
}

func (l *load) create(ctx context.Context) (did bool, err error) {
	pod := l.next()
	if pod == nil {
		return false, nil
	}
	if err := l.client.Create(ctx, pod); err != nil {
		return false, fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	return true, nil
}

// next returns a pod to create, or nil.
func (l *load) next() *corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.there) >= l.want {
		return nil
	}
	l.made++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("pod-%d", l.made)}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry.example.com/app"}}
	zone := l.zone
	if zone == "" && l.random.IntN(100) < zonedPods {
		zone = zones[l.random.IntN(len(zones))]
	}
	if zone != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone}
	}
	l.there[pod.Name] = podSeen{}
	return pod
}

func (l *load) delete(ctx context.Context) (did bool, err error) {
	name := l.victim()
	if name == "" {
		return false, nil
	}
	if err := l.deletes.Wait(ctx); err != nil {
		return false, err
	}
	return true, l.remove(ctx, name, 1)
}

// victim returns the name of a pod to delete, or "".
func (l *load) victim() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	spare := len(l.there) > l.want || l.churning && len(l.running) > l.want*runningShare/100
	if len(l.running) == 0 || !spare {
		return ""
	}
	name := l.running[l.random.IntN(len(l.running))]
	l.unlist(name)
	return name
}

// remove deletes a pod. With a grace period its kubelet frees its address before it is
// gone.
func (l *load) remove(ctx context.Context, name string, grace int64) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	if err := l.client.Delete(ctx, pod, client.GracePeriodSeconds(grace)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	return nil
}

// empty deletes all pods, including pending ones, and waits until they are gone.
func (l *load) empty(ctx context.Context) error {
	l.keep(0, true)
	return harness.Until(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := l.client.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodRunning {
				if err := l.remove(ctx, p.Name, 1); err != nil {
					return err
				}
			}
		}
		if there, _, _ := l.counts(); there > 0 {
			return fmt.Errorf("%d pods are there", there)
		}
		return nil
	})
}
