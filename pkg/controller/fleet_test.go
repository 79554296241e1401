package controller

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// nodesAtOnce is the number of nodes of a fleet that exist at a time. With two blocks each, pool p
// is full.
const nodesAtOnce = 256

// fleet is an operator that watches nodes come and go. The API server accepts every write and makes
// no change.
type fleet struct {
	testing.TB
	*Operator
	settings config.Settings
	registry *prometheus.Registry
	clock    *clocktesting.FakePassiveClock
	objects  map[string]client.Object // that the cache shows, by kind and name
	queues   map[string]workqueue.TypedRateLimitingInterface[reconcile.Request]
	watches  map[string]informer.Watch
	version  int
}

// soon is a queue that does not delay.
type soon struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (q soon) AddAfter(r reconcile.Request, _ time.Duration) { q.Add(r) }

type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func kindAndName(obj client.Object, name string) string { return fmt.Sprintf("%T %s", obj, name) }

func newFleet(t testing.TB, elected <-chan struct{}) *fleet {
	f := &fleet{TB: t, clock: clocktesting.NewFakePassiveClock(fixtures.Noon()), objects: map[string]client.Object{},
		queues: map[string]workqueue.TypedRateLimitingInterface[reconcile.Request]{}, watches: map[string]informer.Watch{}}
	scheme, err := apiclient.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			known, exists := f.objects[kindAndName(obj, key.Name)]
			if !exists {
				return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(known).Elem())
			return nil
		},
		List:   func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return nil },
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return nil },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return nil
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return nil },
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return nil
		},
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return nil
		},
	}).Build()
	f.registry = prometheus.NewRegistry()
	s := config.DefaultSettings()
	s.Defaults.Maintenance.BlocksPerHour = 1000
	s.AgentSettle, s.Registry, s.OfferFamilies = 0, f.registry, []ipalloc.Family{ipalloc.IPv4}
	if f.Operator, err = New(Environment{Cache: api, Live: api, Client: api, Recorder: silent{}, Clock: f.clock}, s); err != nil {
		t.Fatal(err)
	}
	f.settings = s
	f.Feed.Elected, f.Feed.From.Unscheduled = elected, &toolscache.ListWatch{}
	for _, w := range controllersOf(f.Operator, s) {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](0, 0)
		q := soon{workqueue.NewTypedRateLimitingQueue(limiter)}
		if w.newQueue != nil {
			q = soon{w.newQueue(w.name, limiter)}
		}
		t.Cleanup(q.ShutDown)
		f.queues[w.name] = q
		if err := w.source.Start(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range f.Feed.Watches(logr.Discard()) {
		switch {
		case w.Agents:
			f.watches["agents"] = w
		case w.From != nil && w.From == f.Feed.From.Unscheduled:
			f.watches["unscheduled"] = w
		default:
			f.watches[fmt.Sprintf("%T", w.Object)] = w
		}
	}
	for _, pool := range []*v1alpha1.PodIPPool{fixtures.PodIPPool("p", 1, "10.0.0.0/18"), fixtures.PodIPPool("left", 2, "10.1.0.0/18")} {
		pool.Spec.IPv4.BlockSize, pool.Finalizers = 27, []string{v1alpha1.Finalizer}
		if pool.Name == "left" {
			pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "other"}}
			pool.Spec.UnselectedNodes.Policy = v1alpha1.UnselectedNodesDrain
		}
		f.exists(pool)
	}
	f.Feed.Begin()
	return f
}

// event delivers an object to the watch of its kind, or the named watch.
func (f *fleet) event(obj client.Object, gone bool, watch ...string) {
	f.Helper()
	f.version++
	obj.SetResourceVersion(fmt.Sprint(f.version))
	w := f.watches[append(watch, fmt.Sprintf("%T", obj))[0]]
	key := kindAndName(obj, obj.GetName())
	if f.objects[key] = obj; gone {
		delete(f.objects, key)
	}
	var err error
	switch {
	case w.Store != nil && gone:
		err = w.Store.Delete(obj)
	case w.Store != nil:
		err = w.Store.Add(obj)
	case gone:
		w.Handler.OnDelete(obj)
	default:
		w.Handler.OnAdd(obj, false)
	}
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) exists(obj client.Object, watch ...string) { f.event(obj, false, watch...) }

// work reconciles all queued items, or the items of the named controllers.
func (f *fleet) work(only ...string) {
	f.Helper()
	for _, w := range controllersOf(f.Operator, f.settings) {
		if len(only) > 0 && !slices.Contains(only, w.name) {
			continue
		}
		for q := f.queues[w.name]; q.Len() > 0; {
			item, _ := q.Get()
			if _, err := w.reconciler.Reconcile(f.Context(), item); err != nil {
				f.Fatalf("%s %s: %v", w.name, item.Name, err)
			}
			q.Done(item)
		}
	}
}

// member holds the objects of one node, with the watch of each.
type member struct {
	client.Object
	watch string
}

// members returns node n: every other one lacks addresses, and the rest have an idle block, some of
// them of a pool that does not select the node.
func members(n int) []member {
	slot := n % nodesAtOnce
	m := fixtures.NewMachine(n)
	name := m.Node.Name
	out := []member{{m.Node, ""}, {m.Agent, "agents"}, {m.CiliumNode, ""}} // in the order of their end
	pools := []string{"p", "p"}
	if n%4 == 3 {
		pools = append(pools, "left")
	}
	for i, pool := range pools {
		at := 2*slot + i%2
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 2), byte(at >> 3), byte(at << 5)}), 27)
		block := m.Add(pool, cidr)
		crd.SetBlockClosed(block, expand.Closed{Agent: "container", Since: fixtures.Noon()})
		out = append(out, member{block, ""})
	}
	m.CiliumNode.Status.IPAM.Used = fixtures.AllocationMap(m.Addrs[0])
	pods := 2
	if n%2 == 0 {
		pods = len(m.Addrs) + 3
	}
	for i := range pods {
		out = append(out, member{fixtures.Pod(fmt.Sprintf("%s-%d", name, i), fmt.Sprintf("%s-%d", name, i), name), ""})
	}
	pending := fixtures.Pod("pending-"+name, "pending-"+name, "")
	pending.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable, Message: "Insufficient " + v1alpha1.IPv4Resource}}
	return append(out, member{pending, "unscheduled"})
}

// deliver delivers the events of objects that exist, or are gone.
func (f *fleet) deliver(all []member, gone bool) {
	f.Helper()
	for _, m := range all {
		if m.watch == "" {
			f.event(m.Object, gone)
		} else {
			f.event(m.Object, gone, m.watch)
		}
	}
}

// comeAndGo lets nodes join, and leave again.
func (f *fleet) comeAndGo(from, to int) {
	f.Helper()
	for ; from < to; from += nodesAtOnce {
		var all []member
		for n := from; n < from+nodesAtOnce; n++ {
			all = append(all, members(n)...)
		}
		for _, gone := range []bool{false, true} {
			f.deliver(all, gone)
			if f.Feed.Elected == nil {
				f.work()
			}
			f.clock.SetTime(f.clock.Now().Add(expand.ReportLag))
		}
	}
	// Any later event drops pods that ended some time ago.
	last := fixtures.Pod("last", "last", "")
	f.event(last, true)
	f.exists(last)
	delete(f.objects, kindAndName(last, last.Name))
}

// sizes returns the number of entries of all maps and slices that are reachable, by type and
// field.
func sizes(of ...any) map[string]int {
	out, seen := map[string]int{}, map[any]bool{}
	var visit func(at string, v reflect.Value)
	visit = func(at string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if v.IsNil() || v.Kind() == reflect.Pointer && seen[[2]any{v.Pointer(), v.Type()}] {
				return
			}
			if v.Kind() == reflect.Pointer {
				seen[[2]any{v.Pointer(), v.Type()}] = true
			}
			visit(at, v.Elem())
		case reflect.Struct:
			path := v.Type().PkgPath()
			if !strings.Contains(path, "cilium-pool-operator/pkg/") && path != "container/list" {
				return
			}
			for i := range v.NumField() {
				visit(fmt.Sprintf("%s.%s", v.Type(), v.Type().Field(i).Name), v.Field(i))
			}
		case reflect.Map:
			out[at] += v.Len()
			for entries := v.MapRange(); entries.Next(); {
				visit(at, entries.Value())
			}
		case reflect.Slice, reflect.Array:
			if v.Kind() == reflect.Slice {
				out[at] += v.Len()
			}
			for i := range v.Len() {
				visit(at, v.Index(i))
			}
		}
	}
	for _, v := range of {
		visit("", reflect.ValueOf(v))
	}
	for at, n := range out {
		if n == 0 {
			delete(out, at)
		}
	}
	return out
}

// Of 10,000 nodes that come and go no memory stays in the process, neither in the leader nor in a
// standby.
func TestFleetsLeaveNothingBehind(t *testing.T) {
	for name, elected := range map[string]chan struct{}{"leader": nil, "standby": make(chan struct{})} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, elected)
			held := func() map[string]int {
				out := sizes(f.Operator)
				for name, q := range f.queues {
					out["queue "+name] = q.Len()
				}
				families, err := f.registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				for _, family := range families {
					out["series of "+family.GetName()] = len(family.GetMetric())
				}
				// Deleted blocks are remembered up to a number.
				delete(out, "state.Ledger.gone")
				return out
			}
			f.comeAndGo(0, nodesAtOnce)
			before := held()
			f.comeAndGo(nodesAtOnce, 40*nodesAtOnce)
			after := held()
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("held before and after (-before +after):\n%s", diff)
			}
			if n := after["state.claims.closed"]; n > 0 { // later nodes with the same CIDRs hide it above
				t.Errorf("%d closed blocks of nodes that are gone", n)
			}
		})
	}
}
