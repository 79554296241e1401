package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	namespace = metav1.NamespaceDefault
	// appLabel tells which pods belong together.
	appLabel = "app"
	writers  = 16
)

// pods are the names of an application's pods on a node, sorted.
func (s *stage) pods(ctx context.Context, app, node string) ([]string, error) {
	list := &corev1.PodList{}
	if err := s.client.List(ctx, list, client.InNamespace(namespace),
		client.MatchingLabels{appLabel: app}, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var names []string
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// scale makes so many pods of an application run on a node, bound to it as a
// scheduler would. It says first by how many that differs from before. Those
// that must go are taken evenly over all, as their addresses lie scattered too.
func (s *stage) scale(ctx context.Context, app, node string, count int, say func(by int)) error {
	names, err := s.pods(ctx, app, node)
	if err != nil {
		return err
	}
	say(count - len(names))
	if more := count - len(names); more > 0 {
		return parallel(more, func(int) error { return s.createPod(ctx, app, node) })
	}
	kept := evenly(len(names), count)
	return parallel(len(names), func(i int) error {
		if kept[i] {
			return nil
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names[i]}}
		return client.IgnoreNotFound(s.client.Delete(ctx, pod, client.GracePeriodSeconds(1)))
	})
}

// evenly picks count of the numbers below of.
func evenly(of, count int) map[int]bool {
	picked := map[int]bool{}
	for i := range count {
		picked[i*of/count] = true
	}
	return picked
}

func (s *stage) createPod(ctx context.Context, app, node string) error {
	err := s.client.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: app + "-" + node + "-", Labels: map[string]string{appLabel: app},
		},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "app", Image: "registry.example.com/app"}},
		},
	})
	if err != nil {
		return fmt.Errorf("create pod on %s: %w", node, err)
	}
	return nil
}

// parallel calls do with 0 to n-1, several at a time.
func parallel(n int, do func(int) error) error {
	next := make(chan int)
	var group sync.WaitGroup
	errs := make([]error, n)
	for range min(n, writers) {
		group.Go(func() {
			for i := range next {
				errs[i] = do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	return errors.Join(errs...)
}
