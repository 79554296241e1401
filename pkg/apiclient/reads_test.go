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

// A watch that would begin at a version that etcd has yet to reach shows a restore, whatever way the reflector takes to it.
func TestReadsRecognizeRestore(t *testing.T) {
	const list, watches = "list", "watch"
	type call struct{ kind, version string } // version: of the options
	for name, test := range map[string]struct {
		kind    string
		calls   []call
		present string // at the last call
		fails   bool   // all lists then
		want    bool
	}{
		"a watch goes on":                 {"PodIPBlock", []call{{watches, "8"}, {watches, "9"}}, "9", false, false},
		"a watch goes on after writes":    {"PodIPBlock", []call{{watches, "9"}}, "10", false, false},
		"a first list, streamed":          {"PodIPBlock", []call{{watches, ""}}, "5", false, false},
		"a first list":                    {"PodIPBlock", []call{{list, "0"}, {watches, "5"}}, "5", false, false},
		"restored":                        {"PodIPBlock", []call{{watches, "8"}, {watches, "9"}}, "5", false, true},
		"restored, and streamed anew":     {"PodIPBlock", []call{{watches, "9"}, {watches, ""}}, "5", false, true},
		"restored, and listed anew":       {"PodIPBlock", []call{{list, "9"}, {list, ""}, {watches, "5"}}, "5", false, true},
		"the kind has an etcd of its own": {"Event", []call{{watches, "9"}}, "5", false, false},
		"no right to list any more":       {"PodIPBlock", []call{{watches, "9"}}, "5", true, false},
		"versions that are no numbers":    {"PodIPBlock", []call{{watches, "abc"}}, "abd", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			restored := false
			reads := &Reads{Now: time.Now, Restored: func() { restored = true }}
			from := toolscache.ToListerWatcherWithContext(reads.Of(test.kind, &toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					if test.fails {
						return nil, errors.New("refused")
					}
					return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: test.present}}, nil
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
			}))
			for _, c := range test.calls {
				options := metav1.ListOptions{ResourceVersion: c.version}
				var err error
				if c.kind == list {
					_, err = from.ListWithContext(t.Context(), options)
				} else {
					_, err = from.WatchWithContext(t.Context(), options)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if restored != test.want {
				t.Errorf("it is restored: %t, want %t", restored, test.want)
			}
		})
	}
}
