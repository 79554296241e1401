package node

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A block is released only after the CiliumNode has changed since the block began to cool down,
// so that every older patch of it conflicts.
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
		cn := fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29"), "10.0.0.1") // five more to publish
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

// A change by another process between the decision and the patch invalidates the decision.
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
			b.Before = func(call string) {
				if call != "get PodIPBlock" {
					return
				}
				b.Before = func(string) {}
				b.Blind = true // another process changes it, and this one's watch lags
				obj := &v1alpha1.PodIPBlock{}
				if err := b.API.Get(t.Context(), types.NamespacedName{Name: "10.0.0.0-30"}, obj); err != nil {
					t.Fatal(err)
				}
				if err := change(b, obj); err != nil {
					t.Fatal(err)
				}
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

// The CiliumNode of a Node that reappears while the operator checks whether it is gone is left
// alone.
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

// Objects from the cache share their conditions with every reader, and the client decodes a
// response into the passed object without clearing it first. So a live read needs an object of its
// own.
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
