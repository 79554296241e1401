package node

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// notInTime is a watch that delivers no event within the time that a claim waits.
func notInTime(context.Context, types.UID) error { return context.DeadlineExceeded }

// overlapped delivers a block of another node that overlaps the first blocks of pool p.
func overlapped(b *bed) { b.r.Ledger.Upsert(fixtures.Block("10.0.0.0/29", "q", "m", 1)) }

// namedByM delivers that node m's CiliumNode names 10.0.0.2.
func namedByM(b *bed) {
	b.r.Ledger.UpsertCiliumNode(ciliumnode.NewView(publishing(fixtures.CiliumNode("m", ""), "10.0.0.2")))
}

// A claim is published only once the watch has delivered it, alone. An address that overlaps, or
// that another CiliumNode names, is published only if it is in use here.
func TestReconcilePublishes(t *testing.T) {
	small, first := fixtures.PodIPPool("p", 1, "10.0.0.0/30"), inService("10.0.0.0/30")
	runScenarios(t, map[string]scenario{
		"no claim that overlaps": {
			want:  "blocks 10.0.0.0/30 InService 10.0.0.8/30 InService",
			given: func(b *bed) { b.once("create PodIPBlock", func() { overlapped(b) }) },
		},
		"nothing that it may not list, found during the live read": {
			want:    "blocks 10.0.0.0/30 InService",
			objects: []client.Object{small, bare(), first},
			given:   func(b *bed) { b.once("get PodIPBlock", func() { overlapped(b) }) }, calls: "get PodIPBlock",
		},
		"no podCIDR of a block that is gone": {
			want:    "pool 10.0.0.1 10.0.0.2",
			objects: []client.Object{small, publishing(fixtures.CiliumNode("n", ""), "10.0.0.1", "10.0.0.2")},
			given:   func(b *bed) { b.r.Ledger.Upsert(b.ReadBlock(first)) }, calls: "get PodIPBlock",
		},
		"nothing more of a listed block that overlaps, even in use": {
			want:    "blocks 10.0.0.0/30 InService; lists 10.0.0.0/30; pool 10.0.0.1",
			objects: []client.Object{small, using(publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1"), "10.0.0.2"), first}, given: overlapped,
		},
		"nothing more of a published block that overlaps": {
			want:    "blocks 10.0.0.0/30 InService; pool 10.0.0.1",
			objects: []client.Object{small, publishing(fixtures.CiliumNode("n", ""), "10.0.0.1"), first}, given: overlapped,
		},
		"nothing of a block that overlaps": {objects: []client.Object{small, bare(), first}, given: overlapped, want: "blocks 10.0.0.0/30 CoolingDown"},
		"no longer a block that overlaps, which returns its addresses": {
			want:    "blocks 10.0.0.0/30 InService 10.0.0.12/30 InService 10.0.0.8/30 InService; lists 10.0.0.8/30 10.0.0.12/30; pool 10.0.0.1 10.0.0.10 10.0.0.13 10.0.0.14 10.0.0.9; release 10.0.0.1=marked-for-release",
			objects: []client.Object{using(publishing(fixtures.CiliumNode("n", "", "10.0.0.8/30"), "10.0.0.1", "10.0.0.9"), "10.0.0.9"), first, inService("10.0.0.8/30")},
			given: func(b *bed) {
				overlapped(b)
				b.settleAgent()
			},
		},
		"nothing that another CiliumNode names": {
			want:    "blocks 10.0.0.0/30 InService; lists 10.0.0.0/30; pool 10.0.0.1",
			objects: []client.Object{small, bare(), publishing(fixtures.CiliumNode("m", ""), "10.0.0.2"), first},
		},
		"an address in use that another CiliumNode names": {
			want:    "blocks 10.0.0.0/30 InService; lists 10.0.0.0/30; pool 10.0.0.1 10.0.0.2",
			objects: []client.Object{small, using(bare(), "10.0.0.2"), publishing(fixtures.CiliumNode("m", ""), "10.0.0.2"), first},
		},
		"nothing of a claim that another names once it is shown": {
			want:    "blocks 10.0.0.0/30 InService; lists 10.0.0.0/30; pool 10.0.0.1",
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
			want:    "blocks 10.0.0.0/30 InService; lists 10.0.0.0/30; pool 10.0.0.1",
			objects: []client.Object{small, bare(), first},
			given:   func(b *bed) { b.once("get PodIPBlock", func() { namedByM(b) }) },
		},
		"no claim that is gone again": {
			want: "blocks 10.0.0.0/30 InService 10.0.0.4/30 InService",
			given: func(b *bed) {
				b.r.Blocks.WaitForCache = func(_ context.Context, uid types.UID) error {
					for _, k := range b.Blocks() {
						if k.UID == uid {
							b.r.Ledger.Remove(k)
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
		b.r.Ledger.Upsert(k)
	}
	b.settle()
	if v := b.CiliumNode(); len(v.Pool) != 4 || len(b.Blocks()) != 2 {
		t.Errorf("once shown: pool %v of %d blocks; want four addresses of two", v.Pool, len(b.Blocks()))
	}
}

// A block stays with its node, and stays published, when an older pool comes to assign its
// range. New blocks come from the older pool, beside it.
func TestReconcileKeepsBlockOfAnOverlappedPool(t *testing.T) {
	cn := using(publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"), "10.0.0.1", "10.0.0.2")
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 2, "10.0.0.0/28"), fixtures.PodIPPool("older", 1, "10.0.0.0/28"), cn, inService("10.0.0.0/30"))
	for range 2 {
		b.settle()
		for _, k := range b.Blocks() {
			if want := k.CIDR == fixtures.Prefix("10.0.0.0/30"); (k.Pool == "p") != want || k.Phase != ipalloc.InService {
				t.Errorf("%s of pool %s, %s", k.CIDR, k.Pool, k.Phase)
			}
		}
		if len(b.Blocks()) < 2 || len(b.CiliumNode().PublishedIn(fixtures.Prefix("10.0.0.0/30"))) != 2 {
			t.Errorf("published %v of blocks %v", b.published(), b.Blocks())
		}
		b.restart()
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
