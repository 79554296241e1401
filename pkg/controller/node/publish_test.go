package node

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// If an old mark exists for an address of a new block, the address is published only after the
// mark is gone; with the mark, the agent assigns it to no pod.
func TestReconcileClaimsUnderAnOldMark(t *testing.T) {
	cn := bare()
	cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": "marked-for-release"}
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), cn)
	b.settle()
	b.publishes("10.0.0.2")
	b.settleAt(fixtures.Defaults().Policy.AckTimeout)
	b.publishes("10.0.0.1", "10.0.0.2")
}

// If the block to claim already exists, unknown to the watch, it counts as ours only if it
// belongs to this node, is in service, and is not about to leave.
func TestReconcileClaimsABlockThatExists(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.PodIPBlock)
		want   string // first address of the block that is published
	}{
		"ours, from a write whose answer was lost": {func(*v1alpha1.PodIPBlock) {}, "10.0.0.1"},
		"another node's":          {func(k *v1alpha1.PodIPBlock) { k.Spec.NodeName = "m" }, "10.0.0.5"},
		"of another pool":         {func(k *v1alpha1.PodIPBlock) { k.Spec.PoolName = "q" }, "10.0.0.5"},
		"ours, and draining":      {func(k *v1alpha1.PodIPBlock) { *k = *fixtures.BlockObject("10.0.0.0/30", ipalloc.Draining) }, "10.0.0.5"},
		"ours, and cooling down":  {func(k *v1alpha1.PodIPBlock) { *k = *coolingDown("10.0.0.0/30") }, "10.0.0.5"},
		"ours, and being deleted": {func(k *v1alpha1.PodIPBlock) { *k = *fixtures.BeingDeleted(k) }, "10.0.0.5"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			existing := inService("10.0.0.0/30")
			test.change(existing)
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/29"), bare(), existing)
			b.Late = existing.Name
			b.restart()
			held, shown := b.r.Cluster.Ledger, b.ReadBlock(existing)
			b.once("get PodIPBlock", func() { held.Upsert(shown) })
			b.step()
			got := b.published()
			if len(got) == 0 || !slices.Contains(got, test.want) || test.want == "10.0.0.5" && slices.Contains(got, "10.0.0.1") {
				t.Errorf("published %v, want %s and what follows", got, test.want)
			}
		})
	}
}

// A node with an exhausted pool is woken by any block freed from then on, even while it publishes its
// new one; if it was woken in vain, by blocks freed while it looks.
func TestReconcileListens(t *testing.T) {
	starving := func(t *testing.T) (*bed, *[]string) {
		b, woken := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), bare()), &[]string{}
		b.pods(3)
		b.r.Cluster.Awaiting.Changed = func(nodes []string) { *woken = append(*woken, nodes...) }
		return b, woken
	}
	t.Run("as it publishes", func(t *testing.T) {
		b, woken := starving(t)
		b.once("patch CiliumNode", func() { b.r.Cluster.Awaiting.Wake(ipalloc.IPv4, []string{"p"}) })
		if b.step(); !slices.Equal(*woken, []string{"n"}) {
			t.Errorf("woken: %v, want n", *woken)
		}
	})
	t.Run("as it looks", func(t *testing.T) {
		b, woken := starving(t)
		b.settle()
		if got := b.r.Cluster.Awaiting.Wake(ipalloc.IPv4, []string{"p"}); !slices.Equal(got, []string{"n"}) {
			t.Fatalf("the first block to come free wakes %v", got)
		}
		taken := b.r.Cluster.TakenPercent // which is called while the node's state is read
		b.r.Cluster.TakenPercent = func(pool string, f ipalloc.Family) int {
			*woken = append(*woken, b.r.Cluster.Awaiting.Wake(ipalloc.IPv4, []string{pool})...)
			return taken(pool, f)
		}
		if b.step(); !slices.Equal(*woken, []string{"n"}) {
			t.Errorf("what comes free meanwhile wakes %v, want n once", *woken)
		}
	})
}

// A claim with a lost response that is not tried again ends as soon as the API server reports that
// there is no such block. Nodes that found the pool exhausted because of it then look again.
func TestReconcileEndsTheDoubtAboutAClaim(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), bare())
	b.Fate = func(write string) fakeapi.Fate {
		if write == "create PodIPBlock" {
			return fakeapi.Refused // no watch event reports it
		}
		return fakeapi.Done
	}
	if _, err := b.reconcile(); err == nil || len(b.r.Cluster.Ledger.UnknownClaims("n")) != 1 {
		t.Fatalf("the failure went unnoticed, or it is in doubt about %v", b.r.Cluster.Ledger.UnknownClaims("n"))
	}
	b.Fate = func(string) fakeapi.Fate { return fakeapi.Done }
	b.must(b.API.Delete(t.Context(), fixtures.BeingDeleted(fixtures.Node())))
	woken := 0
	b.r.Cluster.Ledger.Changed = func(freed, _, _ []netip.Prefix, _ []string) { woken += len(freed) }
	b.settle()
	if got := b.r.Cluster.Ledger.UnknownClaims("n"); len(got) != 0 || woken != 1 {
		t.Errorf("still in doubt about %v, woken %d times", got, woken)
	}
	if n := b.r.Cluster.Ledger.Free(ipalloc.Cut{Ranges: fixtures.Prefixes("10.0.0.0/30"), BlockBits: 30}); n != 1 {
		t.Errorf("%d blocks are free, want 1", n)
	}
}

// A block's update is conditional on the version of the decision. Objects from the cache share their
// conditions with every reader, and the client decodes a response into the passed object without
// clearing it first. So a live read needs an object of its own.
func TestBlockObjectIsWhatWasDecidedOn(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BlockObject("10.0.0.0/30", ipalloc.Draining))
	old := b.object("10.0.0.0-30")
	before, known := old.DeepCopy(), b.ReadBlock(old)
	if _, err := b.r.Blocks.object(t.Context(), known); err != nil {
		t.Error(err)
	}
	newer := b.object("10.0.0.0-30")
	crd.SetBlockPhase(newer, ipalloc.InService, expand.None, "x", fixtures.Noon())
	b.must(b.API.Status().Update(t.Context(), newer))
	if obj, err := b.r.Blocks.object(t.Context(), known); err == nil {
		t.Errorf("got version %s, decided on %s", obj.ResourceVersion, known.ResourceVersion)
	}
	answer, err := json.Marshal(newer)
	b.must(err)
	b.r.Blocks.Cache = readerFunc(func(obj client.Object) error { *obj.(*v1alpha1.PodIPBlock) = *old; return nil })
	b.r.Blocks.Live = readerFunc(func(obj client.Object) error { return json.Unmarshal(answer, obj) })
	got, err := b.r.Blocks.object(t.Context(), b.ReadBlock(newer))
	b.must(err)
	if diff := cmp.Diff(newer, got); diff != "" {
		t.Errorf("block (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, old); diff != "" {
		t.Errorf("the cache's object was written to (-want +got):\n%s", diff)
	}
}

// readerFunc is a client.Reader of one object.
type readerFunc func(obj client.Object) error

func (f readerFunc) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	return f(obj)
}

func (f readerFunc) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// notInTime is a watch that delivers no event within the time that a claim waits.
func notInTime(context.Context, types.UID) error { return context.DeadlineExceeded }

// overlapped delivers a block of another node that overlaps the first blocks of pool p.
func overlapped(b *bed) { b.r.Cluster.Ledger.Upsert(fixtures.Block("10.0.0.0/29", "q", "m", 1)) }

// namedByM delivers that node m's CiliumNode names 10.0.0.2.
func namedByM(b *bed) {
	b.r.Cluster.Ledger.UpsertCiliumNode(ciliumnode.NewView(publishing(fixtures.CiliumNode("m", ""), "10.0.0.2")))
}

// A claim is published only once the watch has delivered it, alone. An address that overlaps, or
// that another CiliumNode names, is published only if it is in use here.
func TestReconcilePublishes(t *testing.T) {
	small, first, limited := fixtures.PodIPPool("p", 1, "10.0.0.0/30"), inService("10.0.0.0/30"), bare()
	limited.Spec.IPAM.MaxAllocate = 3
	runScenarios(t, map[string]scenario{
		"a part of the last block, for max-allocate": {
			want:    "blocks 10.0.0.0/30 10.0.0.4/30; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5",
			objects: []client.Object{limited},
		},
		"its pinned block first": {
			want:    "blocks 10.0.0.12/30 10.0.0.8/30; lists 10.0.0.8/30 10.0.0.12/30; pool 10.0.0.10 10.0.0.13 10.0.0.14 10.0.0.9",
			objects: []client.Object{fixtures.Pin("10.0.0.8/30", "n")},
		},
		"not the pinned blocks of others": {
			want:    "blocks 10.0.0.12/30 10.0.0.4/30; lists 10.0.0.4/30 10.0.0.12/30; pool 10.0.0.13 10.0.0.14 10.0.0.5 10.0.0.6",
			objects: []client.Object{fixtures.Pin("10.0.0.0/30", "m"), fixtures.Pin("10.0.0.8/30", "m")},
		},
		"a pinned block that it does not need": {
			want: "blocks 10.0.0.0/30 10.0.0.12/30 10.0.0.4/30; lists 10.0.0.0/30 10.0.0.4/30 10.0.0.12/30; pool 10.0.0.1 10.0.0.13 10.0.0.14 10.0.0.2 10.0.0.5 10.0.0.6",
			given: func(b *bed) {
				b.step()
				b.r.Cluster.Ledger.Pins.Set(crd.Pin{CIDR: fixtures.Prefix("10.0.0.12/30"), Node: "n"})
			},
		},
		"no claim that overlaps": {
			want:  "blocks 10.0.0.0/30 10.0.0.8/30",
			given: func(b *bed) { b.once("create PodIPBlock", func() { overlapped(b) }) },
		},
		"nothing that it may not list, found during the live read": {
			want:    "blocks 10.0.0.0/30",
			objects: []client.Object{small, bare(), first},
			given:   func(b *bed) { b.once("get PodIPBlock", func() { overlapped(b) }) }, calls: "get PodIPBlock",
		},
		"no podCIDR of a block that is gone": {
			want:    "pool 10.0.0.1 10.0.0.2",
			objects: []client.Object{small, publishing(fixtures.CiliumNode("n", ""), "10.0.0.1", "10.0.0.2")},
			given:   func(b *bed) { b.r.Cluster.Ledger.Upsert(b.ReadBlock(first)) }, calls: "get PodIPBlock",
		},
		"nothing more of a listed block that overlaps, even in use": {
			want:    "blocks 10.0.0.0/30; lists 10.0.0.0/30; pool 10.0.0.1",
			objects: []client.Object{small, using(publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1"), "10.0.0.2"), first}, given: overlapped,
		},
		"nothing more of a published block that overlaps": {
			want:    "blocks 10.0.0.0/30; pool 10.0.0.1",
			objects: []client.Object{small, publishing(fixtures.CiliumNode("n", ""), "10.0.0.1"), first}, given: overlapped,
		},
		"nothing of a block that overlaps": {objects: []client.Object{small, bare(), first}, given: overlapped, want: "blocks 10.0.0.0/30 CoolingDown"},
		"no longer a block that overlaps, which returns its addresses": {
			want:    "blocks 10.0.0.0/30 10.0.0.12/30 10.0.0.8/30; lists 10.0.0.8/30 10.0.0.12/30; pool 10.0.0.1 10.0.0.10 10.0.0.13 10.0.0.14 10.0.0.9; release 10.0.0.1=marked-for-release",
			objects: []client.Object{using(publishing(fixtures.CiliumNode("n", "", "10.0.0.8/30"), "10.0.0.1", "10.0.0.9"), "10.0.0.9"), first, inService("10.0.0.8/30")},
			given: func(b *bed) {
				overlapped(b)
				b.settleAgent()
			},
		},
		"nothing that another CiliumNode names": {
			want:    "blocks 10.0.0.0/30; lists 10.0.0.0/30; pool 10.0.0.1",
			objects: []client.Object{small, bare(), publishing(fixtures.CiliumNode("m", ""), "10.0.0.2"), first},
		},
		"an address in use that another CiliumNode names": {
			want:    "blocks 10.0.0.0/30; lists 10.0.0.0/30; pool 10.0.0.1 10.0.0.2",
			objects: []client.Object{small, using(bare(), "10.0.0.2"), publishing(fixtures.CiliumNode("m", ""), "10.0.0.2"), first},
		},
		"nothing of a claim that another names once it is shown": {
			want:    "blocks 10.0.0.0/30; lists 10.0.0.0/30; pool 10.0.0.1",
			objects: []client.Object{small},
			given: func(b *bed) {
				shown := b.r.Blocks.WaitForCache
				b.r.Blocks.WaitForCache = func(ctx context.Context, uid types.UID) error {
					b.Watch()
					namedByM(b)
					return shown(ctx, uid)
				}
			},
		},
		"nothing that another names during the live read": {
			want:    "blocks 10.0.0.0/30; lists 10.0.0.0/30; pool 10.0.0.1",
			objects: []client.Object{small, bare(), first},
			given:   func(b *bed) { b.once("get PodIPBlock", func() { namedByM(b) }) },
		},
		"no claim that is gone again": {
			want: "blocks 10.0.0.0/30 10.0.0.4/30",
			given: func(b *bed) {
				b.r.Blocks.WaitForCache = func(_ context.Context, uid types.UID) error {
					for _, k := range b.Blocks() {
						if k.UID == uid {
							b.r.Cluster.Ledger.Remove(k)
						}
					}
					return nil
				}
			},
		},
	})
}

// A claim that the watch delivers late is published then.
func TestReconcilePublishesNoClaimBeforeTheWatchShowsIt(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	shown := b.r.Blocks.WaitForCache
	b.r.Blocks.WaitForCache, b.Blind = notInTime, true
	for range 2 {
		b.step()
		b.publishes()
		b.listsOnly()
	}
	b.r.Blocks.WaitForCache, b.Blind = shown, false
	for _, k := range b.Blocks() {
		b.r.Cluster.Ledger.Upsert(k)
	}
	b.settle()
	if v := b.CiliumNode(); len(v.Published()) != 4 || len(b.Blocks()) != 2 {
		t.Errorf("once shown: pool %v of %d blocks; want four addresses of two", v.Published(), len(b.Blocks()))
	}
}

// A change by another process between the decision and the patch invalidates the decision.
func TestReconcilePublishesOnlyWhatIsStillHeld(t *testing.T) {
	update := func(b *bed, obj *v1alpha1.PodIPBlock) error {
		obj.Finalizers = nil
		return b.API.Update(b.T.Context(), obj)
	}
	for name, change := range map[string]func(b *bed, obj *v1alpha1.PodIPBlock) error{
		"it drains": func(b *bed, obj *v1alpha1.PodIPBlock) error {
			crd.SetBlockPhase(obj, ipalloc.Draining, expand.Reclaim, "x", fixtures.Noon())
			return b.API.Status().Update(b.T.Context(), obj)
		},
		"it is deleted": func(b *bed, obj *v1alpha1.PodIPBlock) error { return b.API.Delete(b.T.Context(), obj) },
		"it is removed by force": func(b *bed, obj *v1alpha1.PodIPBlock) error {
			return errors.Join(update(b, obj), b.API.Delete(b.T.Context(), obj))
		},
		"it is removed by force and recreated": func(b *bed, obj *v1alpha1.PodIPBlock) error {
			return errors.Join(update(b, obj), b.API.Delete(b.T.Context(), obj), b.API.Create(b.T.Context(), inService("10.0.0.0/30")))
		},
		"its finalizer is taken off": update,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), bare(), inService("10.0.0.0/30"), inService("10.0.0.4/30"))
			b.once("get PodIPBlock", func() {
				b.Blind = true // another process changes it, and this one's watch lags
				b.must(change(b, b.object("10.0.0.0-30")))
			})
			b.step()
			b.publishes()
		})
	}
}

// A block that could not be published for long is left out, so that the node grows by another one, and tried again a
// minute later.
func TestPublicationIsTriedAgain(t *testing.T) {
	b := newBed(t, bare(), fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), inService("10.0.0.0/30"))
	fails := func() {
		t.Helper()
		if _, err := b.reconcile(); err == nil {
			t.Fatal("the failure went unnoticed")
		}
	}
	b.Refuse = map[string]error{"get PodIPBlock": fakeapi.ErrLine}
	fails()
	b.at(common.MaxBackoff - time.Second)
	fails()
	b.at(common.MaxBackoff)
	b.Refuse = nil
	result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("n"))
	if again := common.LongestWait - time.Second; err != nil || result.RequeueAfter != again || len(b.published()) > 0 {
		t.Fatalf("%v, %v, published %v; want nothing, and another look after %v", result, err, b.published(), again)
	}
	b.at(common.MaxBackoff + common.LongestWait)
	b.settle()
	b.publishes("10.0.0.1", "10.0.0.2")
}
