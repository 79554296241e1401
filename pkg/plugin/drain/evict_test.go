package drain

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
)

// podAt returns a pod of a ReplicaSet with an address in 10.0.0.0/24.
func podAt(name, ip string, edits ...func(*corev1.Pod)) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name),
		// It keeps a terminating pod, as a grace period does.
		Finalizers:      []string{"example.org/grace"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "rs", Controller: &yes}},
	}}
	p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func placedPod(name, ip string) placed {
	return placed{types.NamespacedName{Namespace: "default", Name: name}, "n1", netip.MustParseAddr(ip), "10.0.0.0-24", types.UID("uid-" + name), nil}
}

// eviction is one request.
type eviction struct{ Pod, UID string }

// world is an API server with pods, its refusals, and the requests it received.
type world struct {
	client.WithWatch
	refuse   map[string]error
	requests []eviction
	out      strings.Builder
	now      time.Time
}

func newWorld(pods ...client.Object) *world {
	w := &world{refuse: map[string]error{}, now: time.Unix(1000, 0)}
	w.WithWatch = fake.NewClientBuilder().WithObjects(pods...).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, body client.Object, _ ...client.SubResourceCreateOption) error {
			if sub != "eviction" {
				return apierrors.NewNotFound(schema.GroupResource{Resource: sub}, obj.GetName())
			}
			w.requests = append(w.requests, eviction{obj.GetName(), string(*body.(*policyv1.Eviction).DeleteOptions.Preconditions.UID)})
			if err := w.refuse[obj.GetName()]; err != nil {
				return err
			}
			return c.Delete(ctx, obj)
		},
	}).Build()
	return w
}

func (w *world) evicter(limit int) *evicter {
	e := newEvicter(&cli.Env{IOStreams: genericiooptions.IOStreams{Out: &w.out}}, w, flags{maxConcurrent: limit})
	e.now = func() time.Time { return w.now }
	return e
}

// steps returns the requests of a step.
func (w *world) step(t *testing.T, e *evicter, pods ...placed) []eviction {
	t.Helper()
	w.requests = nil
	if err := e.step(t.Context(), pods); err != nil {
		t.Fatal(err)
	}
	return w.requests
}

// ends lets a terminating pod finish.
func (w *world) ends(t *testing.T, name string) {
	t.Helper()
	p := &corev1.Pod{}
	if err := w.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: name}, p); err != nil {
		t.Fatal(err)
	}
	p.Finalizers = nil
	if err := w.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func TestEvictsNoMoreAtATime(t *testing.T) {
	w := newWorld(podAt("a", "10.0.0.1"), podAt("b", "10.0.0.2"), podAt("c", "10.0.0.3"), podAt("d", "10.0.0.4"))
	all := []placed{placedPod("a", "10.0.0.1"), placedPod("b", "10.0.0.2"), placedPod("c", "10.0.0.3"), placedPod("d", "10.0.0.4")}
	e := w.evicter(2)
	if diff := cmp.Diff([]eviction{{"a", "uid-a"}, {"b", "uid-b"}}, w.step(t, e, all...)); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	if got := w.step(t, e, all...); len(got) > 0 {
		t.Errorf("%v while two are on their way out", got)
	}
	// Another process counts them as well.
	if got := w.step(t, w.evicter(2), all...); len(got) > 0 {
		t.Errorf("another process: %v while two are on their way out", got)
	}
	w.ends(t, "b")
	if diff := cmp.Diff([]eviction{{"c", "uid-c"}}, w.step(t, e, all...)); diff != "" {
		t.Errorf("once one has gone (-want +got):\n%s", diff)
	}
}

// A pod waits, even once its budget allows its eviction, for later pods that were evicted in its
// place.
func TestEvictsNoMoreOnceABudgetLets(t *testing.T) {
	w := newWorld(podAt("a", "10.0.0.1"), podAt("b", "10.0.0.2"))
	leaving := placedPod("b", "10.0.0.2")
	leaving.gracePeriod = new(10 * time.Second)
	e := w.evicter(1)
	if got := w.step(t, e, placedPod("a", "10.0.0.1"), leaving); len(got) > 0 {
		t.Errorf("%v while b is on its way out", got)
	}
	if diff := cmp.Diff([]eviction{{"a", "uid-a"}}, w.step(t, e, placedPod("a", "10.0.0.1"))); diff != "" {
		t.Errorf("once b has gone (-want +got):\n%s", diff)
	}
}

// A pod on a node that is off never ends. Others do not wait for it for ever.
func TestEvictsBesideAPodThatHangs(t *testing.T) {
	w := newWorld(podAt("a", "10.0.0.1"), podAt("b", "10.0.0.2"))
	hangs := placedPod("b", "10.0.0.2")
	hangs.gracePeriod = new(10 * time.Second)
	e := w.evicter(1)
	for _, after := range []time.Duration{0, 10*time.Second + hangsAfter} {
		w.now = w.now.Add(after)
		if got := w.step(t, e, placedPod("a", "10.0.0.1"), hangs); len(got) > 0 {
			t.Errorf("%v while b may still end", got)
		}
	}
	w.now = w.now.Add(time.Second)
	if got := w.step(t, e, placedPod("a", "10.0.0.1"), hangs); len(got) != 1 || !strings.Contains(w.out.String(), "default/b on n1 (10.0.0.2) does not end") {
		t.Errorf("%v while b hangs: %s", got, w.out.String())
	}
}

func TestRefusedEvictionIsTriedAgain(t *testing.T) {
	w := newWorld(podAt("a", "10.0.0.1"), podAt("b", "10.0.0.2"))
	all := []placed{placedPod("a", "10.0.0.1"), placedPod("b", "10.0.0.2")}
	w.refuse["a"] = apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	e := w.evicter(1)
	if diff := cmp.Diff([]eviction{{"a", "uid-a"}, {"b", "uid-b"}}, w.step(t, e, all...)); diff != "" {
		t.Errorf("another takes its turn (-want +got):\n%s", diff)
	}
	w.ends(t, "b")
	w.now = w.now.Add(retryEvery - time.Second)
	if got := w.step(t, e, all...); len(got) > 0 {
		t.Errorf("%v too soon", got)
	}
	w.now = w.now.Add(time.Second)
	if got := w.step(t, e, all...); len(got) != 1 {
		t.Errorf("%v, want another try", got)
	}
	if n := strings.Count(w.out.String(), "disruption budget"); n != 1 {
		t.Errorf("the same is printed %d times:\n%s", n, w.out.String())
	}
	delete(w.refuse, "a")
	w.now = w.now.Add(retryEvery)
	if got := w.step(t, e, all...); len(got) != 1 || !strings.Contains(w.out.String(), "pod default/a on n1 (10.0.0.1) is evicted\n") {
		t.Errorf("%v, %s", got, w.out.String())
	}
}

func TestEvictFails(t *testing.T) {
	w := newWorld(podAt("a", "10.0.0.1"))
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/eviction"}, "a", nil)
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	w.refuse["a"] = ending
	if err := w.evicter(1).step(t.Context(), []placed{placedPod("a", "10.0.0.1")}); err != nil {
		t.Errorf("of a namespace that ends: %v", err)
	}
	w.refuse["a"] = apierrors.NewForbidden(schema.GroupResource{Resource: "pods/eviction"}, "a", errors.New(`admission webhook "keep.example.org" denied the request: it leads`))
	if err := w.evicter(1).step(t.Context(), []placed{placedPod("a", "10.0.0.1")}); err != nil {
		t.Errorf("of a pod that a webhook keeps: %v", err)
	}
	w.refuse["a"] = apierrors.NewForbidden(schema.GroupResource{Resource: "pods/eviction"}, "a", nil)
	if err := w.evicter(1).step(t.Context(), []placed{placedPod("a", "10.0.0.1")}); !apierrors.IsForbidden(err) {
		t.Errorf("%v, want that it is forbidden", err)
	}
}

// A StatefulSet's pod has the name of its predecessor.
func TestSuccessorIsNotEvicted(t *testing.T) {
	w := newWorld(podAt("db-0", "10.9.0.1"))
	if got := w.step(t, w.evicter(1), placedPod("db-0", "10.0.0.1")); len(got) > 0 {
		t.Errorf("%v, which has another address", got)
	}
}

func TestLeftAlone(t *testing.T) {
	w := newWorld(
		podAt("bare", "10.0.0.1", func(p *corev1.Pod) { p.OwnerReferences = nil }),
		podAt("static", "10.0.0.2", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
		podAt("cache", "10.0.0.3", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}),
		podAt("web", "10.0.0.4"),
	)
	all := []placed{placedPod("bare", "10.0.0.1"), placedPod("static", "10.0.0.2"), placedPod("cache", "10.0.0.3"), placedPod("web", "10.0.0.4")}
	e := w.evicter(5)
	if diff := cmp.Diff([]eviction{{"web", "uid-web"}}, w.step(t, e, all...)); diff != "" {
		t.Errorf("evicted (-want +got):\n%s", diff)
	}
	rows := []list.BlockRow{{Block: "10.0.0.0-24"}, {Block: "other"}}
	if got := e.needsPeople(rows, all); got[0].NeedsAction != "" {
		t.Errorf("people must act while web is on its way: %s", got[0].NeedsAction)
	}
	got := e.needsPeople(rows, all[:3])
	if want := "move or delete the pods that --evict leaves alone: default/bare, default/static, default/cache"; got[0].NeedsAction != want || got[1].NeedsAction != "" {
		t.Errorf("people must %q, %q; want %q", got[0].NeedsAction, got[1].NeedsAction, want)
	}
	e = w.evicter(5)
	e.emptyDirs = true
	if got := w.step(t, e, all[2]); len(got) != 1 {
		t.Errorf("%v, want cache evicted with its emptyDir", got)
	}
}

// A pod evicted from a block in service would get an address in it again.
func TestEvictsOffDrainingBlocksAlone(t *testing.T) {
	rows := []list.BlockRow{{Block: "a", Phase: "InService"}, {Block: "b", Phase: "Draining"}, {Block: "c", Phase: "CoolingDown"}}
	if got := draining(rows); len(got) != 1 || got[0].Block != "b" {
		t.Errorf("pods are evicted off %v", got)
	}
}
