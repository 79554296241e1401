package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// podEvents is a ListerWatcher with prepared watches.
type podEvents struct{ watches chan watch.Interface }

func (p podEvents) listerWatcher() *toolscache.ListWatch {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, errors.New("lists are streamed")
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			select {
			case w := <-p.watches:
				return w, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
}

func listEnd(version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
}

func versioned(p *corev1.Pod, version int) *corev1.Pod {
	p.ResourceVersion = fmt.Sprint(version)
	return p
}

// The first list reaches the store object by object. Objects missing at its end, such as objects of
// an attempt that broke off, are dropped then, and later events arrive as usual.
func TestFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed, _ := podBed()
		store := feed.podStore()
		from := podEvents{make(chan watch.Interface)}
		ctx, stop := context.WithCancel(t.Context())
		var reflectors sync.WaitGroup
		defer func() { stop(); reflectors.Wait() }()
		if _, err := (Watch{Object: &corev1.Pod{}, From: from.listerWatcher(), Store: store}).begin(ctx, nil, &reflectors); err != nil {
			t.Fatal(err)
		}
		holds := func(when string, synced bool, want ...string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, names(feed.Pods, "n")); diff != "" || toolscache.IsDone(store.HasSyncedChecker()) != synced {
				t.Errorf("%s: synced %t, pods (-want +got):\n%s", when, toolscache.IsDone(store.HasSyncedChecker()), diff)
			}
		}

		broken := watch.NewFake()
		from.watches <- broken
		broken.Add(versioned(fixtures.Pod("a", "1", "n", "10.0.0.1"), 1))
		broken.Add(versioned(fixtures.Pod("b", "2", "n"), 2))
		holds("in the middle of the list", false, "default/a[10.0.0.1]", "default/b[]")
		broken.Stop()

		again := watch.NewFake()
		from.watches <- again
		again.Add(versioned(fixtures.Pod("b", "2", "n", "10.0.0.2"), 4))
		again.Add(versioned(fixtures.Pod("c", "3", "n"), 4))
		again.Modify(versioned(fixtures.Pod("c", "3", "n", "10.0.0.3"), 5))
		again.Add(versioned(fixtures.Pod("d", "4", "n"), 5))
		again.Delete(versioned(fixtures.Pod("d", "4", "n"), 6))
		holds("in the middle of the next", false, "default/a[10.0.0.1]", "default/b[10.0.0.2]", "default/c[10.0.0.3]", "default/d[]")
		again.Action(watch.Bookmark, listEnd("6"))
		holds("at its end", true, "default/b[10.0.0.2]", "default/c[10.0.0.3]")

		again.Add(versioned(fixtures.Pod("e", "5", "n"), 7))
		again.Delete(versioned(fixtures.Pod("b", "2", "n"), 8))
		holds("later", true, "default/c[10.0.0.3]", "default/e[]")
	})
}
