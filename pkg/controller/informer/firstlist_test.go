package informer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// podEvents is a ListerWatcher with given watches.
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

// The first list reaches the store object by object. Objects of an attempt that broke off are
// dropped if the next one lacks them, and later events arrive as usual.
func TestFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed, _ := podBed()
		store := feed.podStore()
		from := podEvents{make(chan watch.Interface)}
		ctx, stop := context.WithCancel(t.Context())
		go Watch{Object: &corev1.Pod{}, From: from.listerWatcher(), Store: store}.fill(ctx)
		defer func() { stop(); synctest.Wait() }()
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
		holds("in the middle of the next", false, "default/a[10.0.0.1]", "default/b[10.0.0.2]", "default/c[10.0.0.3]")
		again.Action(watch.Bookmark, listEnd("6"))
		holds("at its end", true, "default/b[10.0.0.2]", "default/c[10.0.0.3]")

		again.Add(versioned(fixtures.Pod("e", "5", "n"), 7))
		again.Delete(versioned(fixtures.Pod("b", "2", "n"), 8))
		holds("later", true, "default/c[10.0.0.3]", "default/e[]")
	})
}

// Once another list has begun, an earlier one has no effect.
func TestFirstListOutOfDate(t *testing.T) {
	added := func(name, uid string) watch.Event {
		return watch.Event{Type: watch.Added, Object: fixtures.Pod(name, uid, "n")}
	}
	for name, test := range map[string]struct {
		next func(store firstListStore) []any // what the next list has
		want []string
	}{
		"streamed": {
			next: func(store firstListStore) []any {
				store.BeginFirst()(added("b", "2"))
				return nil
			},
			want: []string{"default/b[]"},
		},
		"as a whole": {
			next: func(store firstListStore) []any {
				store.EndFirst()
				return []any{fixtures.Pod("c", "3", "n")}
			},
			want: []string{"default/c[]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			feed, _ := podBed()
			store := feed.podStore().(firstListStore)
			take := store.BeginFirst()
			take(added("a", "1"))
			list := test.next(store)
			if !take(added("late", "9")) {
				t.Error("what is out of date goes to the Reflector")
			}
			if err := store.Replace(list, "5"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, names(feed.Pods, "n")); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

// Only the first list is passed to the store; the Reflector handles others, and watches without
// a list.
func TestFirstListOnly(t *testing.T) {
	for name, test := range map[string]struct {
		synced bool
		begins *bool
		want   bool
	}{
		"the first list":        {begins: ptr.To(true), want: true},
		"a later list":          {begins: ptr.To(true), synced: true},
		"a watch without one":   {},
		"a watch that says so":  {begins: ptr.To(false)},
		"the same, once synced": {synced: true},
	} {
		t.Run(name, func(t *testing.T) {
			feed, _ := podBed()
			store := feed.podStore()
			if test.synced {
				if err := store.Replace(nil, "1"); err != nil {
					t.Fatal(err)
				}
			}
			from := podEvents{make(chan watch.Interface, 1)}
			fake := watch.NewFake()
			from.watches <- fake
			lw := toolscache.ToListerWatcherWithContext(listerWatcher(from.listerWatcher(), store))
			w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: test.begins})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if got := w != watch.Interface(fake); got != test.want {
				t.Errorf("passed to the store: %t, want %t", got, test.want)
			}
		})
	}
}

// The Reflector handles what is not a pod: errors, bookmarks and other kinds.
func TestFirstListTakesItsKind(t *testing.T) {
	feed, _ := podBed()
	take := feed.podStore().(firstListStore).BeginFirst()
	for name, event := range map[string]watch.Event{
		"an error":     {Type: watch.Error, Object: &metav1.Status{}},
		"a bookmark":   {Type: watch.Bookmark, Object: listEnd("1")},
		"another kind": {Type: watch.Added, Object: &corev1.Node{}},
	} {
		if take(event) {
			t.Errorf("%s is taken", name)
		}
	}
}
