package apiclient

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// A kind is unread until its first list, and from a failure on until a watch has begun again.
func TestReads(t *testing.T) {
	now := time.Unix(0, 0)
	shown := map[string]bool{}
	reads := &Reads{Now: func() time.Time { return now }, Show: func(kind string, unread bool) { shown[kind] = unread }}
	var fails error
	from := &toolscache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return &corev1.ServiceList{}, fails },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), fails },
	}
	services := toolscache.ToListerWatcherWithContext(reads.Of("Service", from))
	pods := toolscache.ToListerWatcherWithContext(reads.Of("Pod", from))
	reads.Of("Optional", from) // never listed
	refused := errors.New("refused")
	const list, watches = "list", "watch"
	for _, step := range []struct {
		why     string
		of      toolscache.ListerWatcherWithContext
		call    string
		fails   error
		unread  bool
		failing []string // for a minute
	}{
		{"no right to list", services, list, refused, true, nil},
		{"another kind is read", pods, list, nil, true, []string{"Service"}},
		{"another kind is watched", pods, watches, nil, true, []string{"Service"}},
		{"the right comes", services, list, nil, false, nil},
		{"no right to watch", services, watches, refused, true, nil},
		{"a list does not make up for that", services, list, nil, true, []string{"Service"}},
		{"nor does time", services, watches, refused, true, []string{"Service"}},
		{"that right comes, too", services, watches, nil, false, nil},
		{"a watch breaks, and no list follows", services, list, refused, true, nil},
		{"but a watch that streams one", services, watches, nil, false, nil},
	} {
		now = now.Add(2 * time.Minute)
		fails = step.fails
		var err error
		if step.call == list {
			_, err = step.of.ListWithContext(t.Context(), metav1.ListOptions{})
		} else {
			_, err = step.of.WatchWithContext(t.Context(), metav1.ListOptions{})
		}
		if !errors.Is(err, step.fails) || shown["Service"] != step.unread {
			t.Errorf("%s: %v, and Services are unread: %v", step.why, err, shown["Service"])
		}
		if got := reads.Failing(now.Add(-time.Minute)); !slices.Equal(got, step.failing) {
			t.Errorf("%s: failing are %v, want %v", step.why, got, step.failing)
		}
	}
	if _, has := shown["Optional"]; has || shown["Pod"] {
		t.Errorf("unread are %v", shown)
	}
}
