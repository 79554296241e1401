package informer

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// After a broken watch, an object deleted and recreated under its name arrives as an update.
func TestHandleReportsAnObjectReplacedUnderItsName(t *testing.T) {
	var calls []string
	h := handle(
		func(p *corev1.Pod) { calls = append(calls, "there "+string(p.UID)) },
		func(p *corev1.Pod) { calls = append(calls, "gone "+string(p.UID)) },
	)
	h.OnAdd(fixtures.Pod("a", "1", "n"), true)
	h.OnUpdate(fixtures.Pod("a", "1", "n"), fixtures.Pod("a", "1", "n"))
	h.OnUpdate(fixtures.Pod("a", "1", "n"), fixtures.Pod("a", "2", "m"))
	h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "default/a", Obj: fixtures.Pod("a", "2", "m")})
	h.OnDelete("nonsense")
	want := []string{"there 1", "there 1", "gone 1", "there 2", "gone 2"}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// listening is a queue that reports each request.
type listening struct {
	workQueue
	add func(name string)
}

func (q listening) Add(r reconcile.Request) { q.add(r.Name) }

func (q listening) AddAfter(r reconcile.Request, _ time.Duration) { q.add(r.Name) }

// newBed returns a feed with empty stores, which has begun.
func newBed() *Feed {
	f := NewFeed()
	f.Ledger, f.Awaiting, f.Now = state.ReadyLedger(), &state.Awaiting{}, fixtures.Noon
	f.Pools, f.Pods, f.Agents = state.NewPools(fixtures.Defaults(), f.Ledger), state.NewPods(), state.NewAgents(0)
	return f
}

// deliver has the watch of an object's kind show the object, or show that it is gone.
func deliver(f *Feed, obj client.Object, gone bool) {
	for _, w := range f.Watches(logr.Discard()) {
		switch {
		case w.Handler == nil || reflect.TypeOf(w.Object) != reflect.TypeOf(obj):
		case gone:
			w.Handler.OnDelete(obj)
		default:
			w.Handler.OnAdd(obj, false)
		}
	}
}

// By the time a node is queued, the ledger has the change that queued it.
func TestFeedTakesInBeforeItQueues(t *testing.T) {
	obj := fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)
	queued, known := 0, false
	feed := newBed()
	look := listening{add: func(name string) {
		queued++
		if _, held := feed.Ledger.Block(fixtures.Prefix("10.0.0.0/30")); held != known {
			t.Errorf("%s is queued with the block known: %t, want %t", name, held, known)
		}
	}}
	feed.queues = [queueCount]workQueue{NodeQueue: look, PoolQueue: look, BlockQueue: look}
	known = true
	deliver(feed, obj, false)
	known = false
	deliver(feed, obj, true)
	if queued != 6 {
		t.Errorf("queued %d times, want a node, a pool and a block, twice", queued)
	}
}

// delays records the delay of queued pools.
type delays struct {
	workQueue
	after *[]string
}

func (q delays) Add(r reconcile.Request) { q.AddAfter(r, 0) }

func (q delays) AddAfter(r reconcile.Request, d time.Duration) {
	*q.after = append(*q.after, r.Name+" "+d.String())
}

// Agents' reports do not have the status of a pool written at once.
func TestFeedLetsReportsComeTogether(t *testing.T) {
	feed, after := newBed(), []string(nil)
	feed.Ledger.Changed, feed.queues[PoolQueue] = feed.SpaceChanged, delays{after: &after}
	feed.Ledger.Upsert(fixtures.Block("10.0.0.0/30", "p", "n", 1))
	for _, cn := range []*ciliumv2.CiliumNode{fixtures.Joined("n", "10.0.0.1"), fixtures.Joined("n", "10.0.0.1")} {
		feed.onCiliumNode(ciliumnode.NewView(cn))
	}
	if diff := cmp.Diff([]string{"p 15s"}, after); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}
}

// A pool's own status write comes back through the watch, and must not trigger the next one at
// once.
func TestFeedLetsPoolStatusRest(t *testing.T) {
	feed, after := newBed(), []string(nil)
	feed.queues[PoolQueue] = delays{after: &after}
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	feed.onPool(pool)
	status := pool.DeepCopy()
	status.Status.Conditions = append(status.Status.Conditions, metav1.Condition{Type: "Ready"})
	feed.onPool(status)
	if diff := cmp.Diff([]string{"p 0s", "p 1s"}, after); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}
}

// A block in service is queued once its CiliumNode has it and until its status says so. When the
// CiliumNode lacks it, the block is given time to cool down. A leader queues all such blocks.
func TestFeedQueuesPublishedBlocks(t *testing.T) {
	feed, after := newBed(), []string(nil)
	feed.queues[PublishedQueue] = delays{after: &after}
	const name = "10.0.0.0-30"
	said := fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)
	crd.SetBlockPublished(said, true, fixtures.Noon())
	said.ResourceVersion = "3"
	claimed, cooling := fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.0/30", ipalloc.CoolingDown)
	claimed.ResourceVersion, cooling.ResourceVersion = "1", "5"
	has, hasNot := ciliumnode.CRD.View(fixtures.CiliumNode("n", "2", "10.0.0.0/30")), ciliumnode.CRD.View(fixtures.CiliumNode("n", "4"))
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"claimed", func() { deliver(feed, claimed, false) }, nil},
		{"published", func() { feed.onCiliumNode(has) }, []string{name + " 0s"}},
		{"a leader begins", func() { feed.elected() }, []string{name + " 0s"}},
		{"written", func() { deliver(feed, said, false) }, nil},
		{"withdrawn", func() { feed.onCiliumNode(hasNot) }, []string{name + " 10s"}},
		{"it cools down", func() { deliver(feed, cooling, false) }, nil},
	} {
		after = nil
		step.do()
		if diff := cmp.Diff(step.want, after); diff != "" {
			t.Errorf("%s: queued (-want +got):\n%s", step.what, diff)
		}
	}
}

// The routes of Nodes that share a hostname are queued whenever those of one come or go.
func TestFeedQueuesRoutesOfAHostname(t *testing.T) {
	feed, after := newBed(), []string(nil)
	feed.Routes = state.NewFRRConfigurations()
	first, second := fixtures.Node(), fixtures.Node()
	second.Name = "m"
	for _, node := range []*corev1.Node{first, second} {
		node.Labels = map[string]string{corev1.LabelHostname: "n"}
		feed.onNode(node)
	}
	feed.queues[RouteQueue] = delays{after: &after}
	obj := frrconfig.Empty("frr", "cilium-pool-t-n")
	obj.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "cilium-pool-operator"})
	obj.SetAnnotations(map[string]string{frrconfig.NodeAnnotation: "n"})
	store := feed.frrConfigurationStore()
	for i, change := range []func(any) error{store.Add, store.Delete} {
		after = nil
		if err := change(obj); err != nil {
			t.Fatal(err)
		}
		slices.Sort(after)
		if diff := cmp.Diff([]string{"m 500ms", "n 500ms"}, slices.Compact(after)); diff != "" {
			t.Errorf("change %d: queued (-want +got):\n%s", i, diff)
		}
	}
}

// A pool is queued when a Node joins or leaves those that it selects, or begins or ceases to starve there, and at no
// other report of the Node.
func TestFeedQueuesPoolsOfNodes(t *testing.T) {
	feed := newBed()
	var after []string
	feed.queues[PoolQueue] = delays{after: &after}
	feed.Pools.Set(fixtures.Edited(fixtures.PodIPPool("p", 1, "10.0.0.0/28"), func(s *v1alpha1.PodIPPoolSpec) {
		s.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "east"}}
	}))
	elsewhere := fixtures.Node()
	fine := fixtures.Node()
	fine.Labels = map[string]string{"zone": "east"}
	short := fine.DeepCopy()
	short.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeAddressShortage, Status: corev1.ConditionTrue, Reason: v1alpha1.NodePoolsExhausted}}
	for i, step := range []struct {
		do   func()
		want int
	}{
		{func() { feed.onNode(elsewhere) }, 0}, {func() { feed.onNode(fine) }, 1}, {func() { feed.onNode(short) }, 2}, {func() { feed.onNode(short) }, 2},
		{func() { feed.onNode(fine) }, 3}, {func() { feed.onNode(elsewhere) }, 4}, {func() { feed.onNode(short) }, 5}, {func() { feed.onNodeGone(short) }, 6},
		{func() { feed.onNodeGone(elsewhere) }, 6},
	} {
		if step.do(); len(after) != step.want {
			t.Errorf("step %d: queued %v, want %d", i, after, step.want)
		}
	}
}

// slowCache delivers its objects once the test lets it sync.
type slowCache struct {
	cache.Cache
	synced *initialList
}

func (c slowCache) GetInformer(ctx context.Context, _ client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	var o cache.InformerGetOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.BlockUntilSynced == nil || *o.BlockUntilSynced {
		toolscache.WaitFor(ctx, "", c.synced)
	}
	return slowInformer{synced: c.synced}, nil
}

type slowInformer struct {
	cache.Informer
	synced *initialList
}

func (i slowInformer) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return slowHandler{synced: i.synced}, nil
}

type slowHandler struct {
	toolscache.ResourceEventHandlerRegistration
	synced *initialList
}

func (h slowHandler) HasSyncedChecker() toolscache.DoneChecker { return h.synced }

// slowWatch streams its object once synced is closed.
func slowWatch(synced chan struct{}, obj client.Object) toolscache.ListerWatcher {
	return &toolscache.ListWatch{WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
		w := watch.NewFake()
		go func() {
			defer w.Stop()
			select {
			case <-synced:
			case <-ctx.Done():
				return
			}
			w.Add(obj)
			bookmark := obj.DeepCopyObject().(client.Object)
			bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			w.Action(watch.Bookmark, bookmark)
			<-ctx.Done()
		}()
		return w, nil
	}}
}

// Decisions begin once every watch, including that of agents, has delivered its initial state, and first blocks are
// claimed without that of pods, which alone waits for the others.
func TestFeedWaitsForEveryWatch(t *testing.T) {
	for _, last := range []string{"the cache", "pods", "agents", "CiliumNodes"} {
		t.Run(last+" last", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cached := &initialList{}
				pods, agents, ciliumNodes := make(chan struct{}), make(chan struct{}), make(chan struct{})
				ledger := state.NewLedger()
				feed := newBed()
				feed.Cache = slowCache{synced: cached}
				feed.From = Sources{
					Pods: slowWatch(pods, fixtures.Pod("a", "1", "n", "10.0.0.1")), Agents: slowWatch(agents, fixtures.AgentPod("1", "c", true)),
					CiliumNodes:     slowWatch(ciliumNodes, fixtures.CiliumNode("n", "5", "10.0.0.0/30")),
					HasServiceCIDRs: func() (bool, error) { return true, nil },
				}
				feed.Ledger, feed.Pools = ledger, state.NewPools(fixtures.Defaults(), ledger)
				close(feed.connected)
				begun := ledger.Ready
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- feed.Start(ctx) }()
				show := map[string]func(){
					"the cache": cached.setStored, "pods": func() { close(pods) }, "agents": func() { close(agents) },
					"CiliumNodes": func() { close(ciliumNodes) },
				}
				for name, shown := range show {
					if name != last {
						shown()
					}
				}
				time.Sleep(time.Minute)
				if begun() {
					t.Error("decisions begin before everything has been read")
				}
				soon, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				claimable := ledger.WaitClaimable(soon) == nil
				if diff := cmp.Diff(last == "pods", claimable); diff != "" {
					t.Errorf("whether first blocks are claimed: %s", diff)
				}
				if last != "CiliumNodes" && feed.Ledger.CiliumNode("n") == nil {
					t.Error("CiliumNodes are read only after other kinds")
				}
				show[last]()
				time.Sleep(time.Minute)
				if !begun() {
					t.Error("decisions do not begin")
				}
				if got := feed.Pods.On("n"); len(got) != 1 {
					t.Errorf("pods known: %v", got)
				}
				if settled, _ := feed.Agents.Settled("n", fixtures.Noon()); !settled {
					t.Error("the agent is not known")
				}
				if feed.Ledger.CiliumNode("n") == nil {
					t.Error("the CiliumNode is not known")
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A status counts all blocks of its pool: if it were written every second, that would take
// most of a core with a million of them.
func TestStatusDelay(t *testing.T) {
	for blocks, want := range map[int]time.Duration{0: time.Second, 250: 1012500 * time.Microsecond, 50_000: 3500 * time.Millisecond, 1_000_000: 10 * time.Second} {
		if got := sizeDelay(blocks); got != want {
			t.Errorf("a pool of %d blocks gets a status after %v, want %v", blocks, got, want)
		}
	}
}
