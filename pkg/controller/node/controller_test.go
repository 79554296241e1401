package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestReconcileFirstBlocks(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	calls, err := b.reconcile()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"create CiliumNode", "create PodIPBlock", "create PodIPBlock", "patch CiliumNode"}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	v := b.CiliumNode()
	if len(v.Pool) != 4 || len(v.PodCIDRs) != 2 {
		t.Errorf("pool %v, podCIDRs %v; want the four usable addresses of two blocks", v.Pool, v.PodCIDRs)
	}
	b.Check("at the end")
	b.settled()
}

// Whatever write is the last one, or has its answer lost, the rules hold and the
// node ends up with what it should have.
func TestReconcileSurvivesEveryWrite(t *testing.T) {
	survivesEveryWrite(t, ciliumnode.CRD, 4, func(b *bed) {
		if v := b.CiliumNode(); len(v.Pool) != 4 || len(b.Blocks()) != 2 {
			b.T.Errorf("pool %v, blocks %v; want four addresses of two blocks", v.Pool, b.Blocks())
		}
	})
}

func TestReconcilePausedWritesNothing(t *testing.T) {
	paused := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	paused.Spec.Paused = true
	pausedNode := fixtures.Node()
	pausedNode.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
	tests := map[string]struct {
		node   *corev1.Node
		pool   *v1alpha1.PodIPPool
		paused bool
	}{
		"the operator": {fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), true},
		"the Node":     {pausedNode, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), false},
		"the pool":     {fixtures.Node(), paused, false},
	}
	states := map[string][]client.Object{
		"no CiliumNode": {},
		"a block published and not listed": {
			fixtures.Publishing(fixtures.CiliumNode("n", ""), "10.0.0.1"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService),
		},
		"a block listed and not published": {
			fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30")), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService),
		},
		"a listed block whose object was removed by force": {fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1")},
		"a block that has cooled down":                     {fixtures.Publishing(fixtures.CiliumNode("n", "")), fixtures.BlockObject("10.0.0.0/30", ipalloc.CoolingDown)},
	}
	for name, test := range tests {
		for state, objects := range states {
			t.Run(name+", "+state, func(t *testing.T) {
				var all []client.Object
				for _, o := range append([]client.Object{test.node, test.pool}, objects...) {
					all = append(all, o.DeepCopyObject().(client.Object))
				}
				b := newBed(t, all...)
				b.r.Paused = test.paused
				b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
				calls, err := b.reconcile()
				if writes := fakeapi.WritesOf(calls); err != nil || len(writes) > 0 {
					t.Errorf("writes %v, %v; want none", writes, err)
				}
			})
		}
	}
}

// A pool that cannot serve stops no node that another pool selects too, whatever
// its priority.
func TestReconcileServesBesideAPoolThatCannot(t *testing.T) {
	good, first := fixtures.PodIPPool("good", 1, "10.0.0.0/28"), func(p *v1alpha1.PodIPPool) *v1alpha1.PodIPPool {
		p.Spec.Priority = 10
		return p
	}
	for name, bad := range map[string]*v1alpha1.PodIPPool{
		"invalid":              first(fixtures.Invalidated(fixtures.PodIPPool("bad", 1, "10.9.0.0/29"))),
		"closed by an overlap": first(fixtures.PodIPPool("bad", 2, "10.0.0.0/29")),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node(), good.DeepCopy(), bad)
			b.settle()
			if v := b.CiliumNode(); v == nil || len(v.Pool) != 4 {
				t.Fatalf("the CiliumNode is %+v, want four addresses", v)
			}
			for _, k := range b.Blocks() {
				if k.Pool != "good" {
					t.Errorf("block %s is of pool %s", k.CIDR, k.Pool)
				}
			}
			b.settled()
		})
	}
}

// Where no other pool selects the node, what an invalid pool gave it stays, and the
// node says what it lacks.
func TestReconcileUnderAnInvalidPoolAlone(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.Invalidated(fixtures.PodIPPool("p", 1, "10.0.0.0/29")),
		fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b.r.Reporter.NodeCondition = true
	for i := range 5 {
		b.r.Pods.Set(podOn(fmt.Sprintf("p%d", i)), fixtures.Noon())
	}
	b.settle()
	if v := b.CiliumNode(); len(v.Pool) != 2 || !v.Lists(fixtures.Prefix("10.0.0.0/30")) {
		t.Errorf("pool %v, podCIDRs %v", v.Pool, v.PodCIDRs)
	}
	b.hasShortage(reasonPoolsExhausted)
	b.reportsShortage("no pool that serves this node (p: invalid) has a free block")
}

// A pause stops what the operator does, not what it says.
func TestReconcilePausedReportsShortage(t *testing.T) {
	paused := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	paused.Spec.Paused = true
	pausedNode := fixtures.Node()
	pausedNode.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
	tests := map[string]struct {
		node *corev1.Node
		pool *v1alpha1.PodIPPool
		says string
	}{
		"the Node": {pausedNode, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), "ipv4: 3 more addresses needed, and the node gets none: the Node is paused"},
		"the pool": {fixtures.Node(), paused, "ipv4: 3 more addresses needed, and the node gets none: pool p is paused (spec.paused)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, test.node, test.pool, fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"),
				fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.InService)) // which is not published
			b.r.Reporter.NodeCondition = true
			b.settle()
			if len(b.node().Status.Conditions) != 0 {
				t.Errorf("conditions %v though no pod waits", b.node().Status.Conditions)
			}
			for i := range 5 {
				b.r.Pods.Set(podOn(fmt.Sprintf("p%d", i)), fixtures.Noon())
			}
			b.settle()
			b.hasShortage(reasonPaused)
			b.reportsShortage(test.says)
			if calls, err := b.reconcile(); err != nil || len(calls) > 0 {
				t.Errorf("settled: calls %v, %v", calls, err)
			}
			if len(b.CiliumNode().Pool) != 2 {
				t.Errorf("the pool is %v", b.CiliumNode().Pool)
			}

			for i := range 5 {
				b.r.Pods.Delete(podOn(fmt.Sprintf("p%d", i)).PodKey, fixtures.Noon())
			}
			b.settle()
			b.hasShortage(reasonEnough)
		})
	}
}

// Where one family is paused and the other is not, the one write of both leaves
// the paused one as it is.
func TestReconcilePausedFamilyStaysAsItIs(t *testing.T) {
	v4, v6 := fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.PodIPPool("q", 1)
	v4.Spec.Paused = true
	v6.Spec.IPv4, v6.Spec.IPv6 = nil, &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/120"}}}
	b := newBed(t, fixtures.Node(), v4, v6, fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.4/30"), "10.0.0.1"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.InService))
	b.settle()
	v := b.CiliumNode()
	if v.Lists(fixtures.Prefix("10.0.0.0/30")) || !v.Lists(fixtures.Prefix("10.0.0.4/30")) || !v.Lists(fixtures.Prefix("fd00::/126")) {
		t.Errorf("podCIDRs are %v", v.PodCIDRs)
	}
}

// The pause of one family stops nothing of the other: a new node gets its CiliumNode
// and its blocks, a block removed by force is recreated, and the agent is asked to report.
func TestReconcilePauseOfOneFamilyStopsThatAlone(t *testing.T) {
	pools := func() (v4, v6 *v1alpha1.PodIPPool) {
		v4, v6 = fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.PodIPPool("q", 1)
		v6.Spec.IPv4, v6.Spec.IPv6 = nil, &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/120"}}}
		return v4, v6
	}
	for name, pause := range map[string]func(v4, v6 *v1alpha1.PodIPPool) (paused, runs string){
		"IPv6": func(_, v6 *v1alpha1.PodIPPool) (string, string) {
			v6.Spec.Paused = true
			return "fd00::/126", "10.0.0.0/30"
		},
		"IPv4": func(v4, _ *v1alpha1.PodIPPool) (string, string) {
			v4.Spec.Paused = true
			return "10.0.0.0/30", "fd00::/126"
		},
	} {
		t.Run(name+", a new node", func(t *testing.T) {
			v4, v6 := pools()
			paused, runs := pause(v4, v6)
			b := newBed(t, fixtures.Node(), v4, v6)
			b.settle()
			v := b.CiliumNode()
			if v == nil || !v.Lists(fixtures.Prefix(runs)) || v.Lists(fixtures.Prefix(paused)) {
				t.Fatalf("CiliumNode is %+v, want one that lists %s and not %s", v, runs, paused)
			}
			b.Check("at the end")
		})
		t.Run(name+", blocks removed by force", func(t *testing.T) {
			v4, v6 := pools()
			paused, runs := pause(v4, v6)
			b := newBed(t, fixtures.Node(), v4, v6, fixtures.Publishing(fixtures.CiliumNode("n", "", paused, runs), "10.0.0.1", "fd00::1"))
			b.settle()
			if b.has(paused) || !b.has(runs) {
				t.Errorf("blocks are %+v, want that of %s alone recreated", b.Blocks(), runs)
			}
		})
		t.Run(name+", an agent that has to be asked", func(t *testing.T) {
			v4, v6 := pools()
			pause(v4, v6)
			b := newBed(t, fixtures.Node(), v4, v6)
			b.settle()
			b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
			b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
			b.settle()
			if asked := b.CiliumNode().Release; len(asked) != 1 {
				t.Fatalf("release entries are %v, want one that asks the agent to report", asked)
			}
			b.Clock.SetTime(fixtures.Noon().Add(2 * time.Hour))
			b.settle()
			if left := b.CiliumNode().Release; len(left) > 0 {
				t.Errorf("release entries %v are left, which nothing clears", left)
			}
		})
	}
}

// A block is released only after the CiliumNode has changed since the block
// began to cool down, so that every older patch of it loses.
func TestReconcileReleasesAfterTheCiliumNodeMoved(t *testing.T) {
	newCase := func(t *testing.T) *bed {
		b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"),
			fixtures.BlockObject("10.0.0.0/29", ipalloc.InService), fixtures.BlockObject("10.0.0.12/30", ipalloc.CoolingDown))
		b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
		return b
	}
	has := func(b *bed) bool {
		return slices.ContainsFunc(b.Blocks(), func(k crd.Block) bool { return k.CIDR == fixtures.Prefix("10.0.0.12/30") })
	}
	t.Run("it is moved first", func(t *testing.T) {
		b := newCase(t)
		version := b.CiliumNode().ResourceVersion
		b.Before = func(call string) {
			if call == "delete PodIPBlock" && b.CiliumNode().ResourceVersion == version {
				t.Error("the block goes though an old patch could still publish it")
			}
		}
		b.settle()
		if has(b) {
			t.Error("the block is still there")
		}
	})
	t.Run("it is moved after the block began to cool down, not before", func(t *testing.T) {
		cn := fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29"), "10.0.0.1") // five more are to be published
		cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1")
		b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), cn,
			fixtures.BlockObject("10.0.0.0/29", ipalloc.InService), fixtures.BeingDeleted(fixtures.BlockObject("10.0.0.12/30", ipalloc.Draining)))
		version := ""
		b.Before = func(call string) {
			switch call {
			case "update PodIPBlock status":
				version = b.CiliumNode().ResourceVersion
			case "patch PodIPBlock":
				if version == "" || b.CiliumNode().ResourceVersion == version {
					t.Error("the block goes though an old patch could still publish it")
				}
			}
		}
		b.settle()
		b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
		b.settle()
		if has(b) {
			t.Errorf("the block is still there: %+v", b.Blocks())
		}
	})
	t.Run("whatever was written before", func(t *testing.T) {
		for fails := range 4 {
			for _, what := range []fakeapi.Fate{fakeapi.Refused, fakeapi.Unheard} {
				b := newCase(t)
				version := b.CiliumNode().ResourceVersion
				n := 0
				b.Fate = func(write string) fakeapi.Fate {
					if write == "delete PodIPBlock" && b.CiliumNode().ResourceVersion == version {
						t.Error("the block goes though an old patch could still publish it")
					}
					if n++; n == fails+1 {
						return what
					}
					return fakeapi.Done
				}
				for range 4 {
					_, _ = b.reconcile() // fails once
				}
				b.restart()
				b.settle()
				if has(b) {
					t.Errorf("write %d, fate %d: the block is still there", fails, what)
				}
			}
		}
	})
	t.Run("not while it is published, read live", func(t *testing.T) {
		b := newCase(t)
		b.Before = func(call string) {
			if call != "get CiliumNode" {
				return
			}
			b.Before = func(string) {}
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ipam":{"pool":{"10.0.0.13":{}}}}}`))
			if err := b.API.Patch(t.Context(), fixtures.Publishing(fixtures.CiliumNode("n", "")), patch); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.reconcile(); err != nil || !has(b) {
			t.Errorf("the block was released; %v", err)
		}
	})
}

// What another process does to a block between the decision and the patch makes
// the decision void.
func TestReconcilePublishesOnlyWhatIsStillHeld(t *testing.T) {
	objects := func() []client.Object {
		return []client.Object{fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Publishing(fixtures.CiliumNode("n", "")), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.InService)}
	}
	tests := map[string]func(b *bed, obj *v1alpha1.PodIPBlock) error{
		"it drains": func(b *bed, obj *v1alpha1.PodIPBlock) error {
			crd.SetBlockPhase(obj, ipalloc.Draining, expand.Reclaim, "x", fixtures.Noon())
			return b.API.Status().Update(b.T.Context(), obj)
		},
		"it is deleted": func(b *bed, obj *v1alpha1.PodIPBlock) error { return b.API.Delete(b.T.Context(), obj) },
		"it is removed by force": func(b *bed, obj *v1alpha1.PodIPBlock) error {
			obj.Finalizers = nil
			return errors.Join(b.API.Update(b.T.Context(), obj), b.API.Delete(b.T.Context(), obj))
		},
		"it is removed by force and recreated": func(b *bed, obj *v1alpha1.PodIPBlock) error {
			obj.Finalizers = nil
			again := fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)
			return errors.Join(b.API.Update(b.T.Context(), obj), b.API.Delete(b.T.Context(), obj), b.API.Create(b.T.Context(), again))
		},
		"its finalizer is taken off": func(b *bed, obj *v1alpha1.PodIPBlock) error {
			obj.Finalizers = nil
			return b.API.Update(b.T.Context(), obj)
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, objects()...)
			ledger := b.r.Ledger
			b.Before = func(call string) {
				if call != "get PodIPBlock" {
					return
				}
				b.Before = func(string) {}
				b.r.Ledger = state.NewLedger() // another process: this one's watch lags
				obj := &v1alpha1.PodIPBlock{}
				if err := b.API.Get(t.Context(), types.NamespacedName{Name: "10.0.0.0-30"}, obj); err != nil {
					t.Fatal(err)
				}
				if err := change(b, obj); err != nil {
					t.Fatal(err)
				}
				b.r.Ledger = ledger
			}
			if _, err := b.reconcile(); err != nil {
				t.Fatal(err)
			}
			if v := b.CiliumNode(); len(v.Pool) > 0 {
				t.Errorf("published %v", v.Pool)
			}
		})
	}
}

// The CiliumNode of a Node that came back while its absence was looked into is
// left alone.
func TestReconcileNodeGone(t *testing.T) {
	newCase := func(t *testing.T) *bed {
		return newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	}
	t.Run("its CiliumNode goes, then its block cools down, then goes too", func(t *testing.T) {
		b := newCase(t)
		b.settle()
		if b.CiliumNode() != nil {
			t.Fatal("the CiliumNode is still there")
		}
		if got := b.Blocks(); len(got) != 1 || got[0].Phase != ipalloc.CoolingDown || got[0].Reason != expand.NodeGone {
			t.Fatalf("blocks are %+v", got)
		}
		b.Clock.SetTime(fixtures.Noon().Add(fixtures.Defaults().NodeGoneCooldown - time.Second))
		b.settle()
		if len(b.Blocks()) != 1 {
			t.Fatal("the block cooled down too briefly")
		}
		b.Clock.SetTime(fixtures.Noon().Add(fixtures.Defaults().NodeGoneCooldown + time.Second))
		b.settle()
		if len(b.Blocks()) != 0 {
			t.Error("the block is still there")
		}
	})
	t.Run("the CiliumNode to delete is read before the Node", func(t *testing.T) {
		b := newCase(t)
		calls, err := b.reconcile()
		if err != nil {
			t.Fatal(err)
		}
		cn, node := slices.Index(calls, "get CiliumNode"), slices.Index(calls, "get Node")
		if cn < 0 || node < cn {
			t.Errorf("calls are %v", calls)
		}
	})
	t.Run("the Node is there after all", func(t *testing.T) {
		b := newCase(t)
		b.Before = func(call string) {
			if call == "get CiliumNode" {
				b.Before = func(string) {}
				if err := b.API.Create(t.Context(), fixtures.Node()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		if b.CiliumNode() == nil {
			t.Error("deleted the CiliumNode of a living Node")
		}
	})
}

// readerFunc is a client.Reader of one object.
type readerFunc func(obj client.Object) error

func (f readerFunc) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	return f(obj)
}

func (f readerFunc) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// The cache hands out objects that share their conditions with every reader, and
// the client decodes an answer into the object it is given, without emptying it
// first. The one must not meet the other.
func TestHeldBlockReadsLiveIntoAFreshObject(t *testing.T) {
	shared := fixtures.BlockObject("10.0.0.0/30", ipalloc.Draining)
	shared.ResourceVersion = "1"
	before := shared.DeepCopy()
	newer := fixtures.BlockObject("10.0.0.0/30", ipalloc.InService) // the watch has not shown it yet
	newer.ResourceVersion = "2"
	answer, err := json.Marshal(newer)
	if err != nil {
		t.Fatal(err)
	}
	r := &BlockClient{
		Ledger: state.NewLedger(),
		Cache:  readerFunc(func(obj client.Object) error { *obj.(*v1alpha1.PodIPBlock) = *shared; return nil }),
		Live:   readerFunc(func(obj client.Object) error { return json.Unmarshal(answer, obj) }),
	}
	known, err := crd.BlockFrom(newer)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.object(t.Context(), known)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(newer, got); diff != "" {
		t.Errorf("block (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, shared); diff != "" {
		t.Errorf("the cache's object was written to (-want +got):\n%s", diff)
	}
}

func TestDefinite(t *testing.T) {
	kind := schema.GroupResource{Resource: "podipblocks"}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"refused by validation":   {apierrors.NewInvalid(schema.GroupKind{Kind: "PodIPBlock"}, "x", nil), true},
		"not allowed":             {apierrors.NewForbidden(kind, "x", nil), true},
		"unknown token":           {apierrors.NewUnauthorized("x"), true},
		"too many requests":       {apierrors.NewTooManyRequests("x", 1), true},
		"no such kind":            {apierrors.NewNotFound(kind, "x"), true},
		"timeout in the server":   {apierrors.NewServerTimeout(kind, "create", 1), false},
		"timeout":                 {apierrors.NewTimeoutError("x", 1), false},
		"internal error":          {apierrors.NewInternalError(fakeapi.ErrLine), false},
		"unavailable":             {apierrors.NewServiceUnavailable("x"), false},
		"the line is dead":        {fakeapi.ErrLine, false},
		"we were asked to stop":   {context.Canceled, false},
		"an unknown status error": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 599}}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := definite(test.err); got != test.want {
				t.Errorf("definite is %t", got)
			}
		})
	}
}
