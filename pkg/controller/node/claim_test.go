package node

import (
	"net/netip"
	"slices"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
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
	if got, want := b.published(), []string{"10.0.0.2"}; !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
	b.settleAt(fixtures.Defaults().Policy.AckTimeout)
	if got, want := b.published(), []string{"10.0.0.1", "10.0.0.2"}; !slices.Equal(got, want) {
		t.Errorf("in the end published %v, want %v", got, want)
	}
}

// max-allocate can cut the last block in two.
func TestReconcileClaimsWithinMaxAllocate(t *testing.T) {
	cn := bare()
	cn.Spec.IPAM.MaxAllocate = 3
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), cn)
	b.settle()
	if got := b.published(); len(got) != 3 {
		t.Errorf("published %v, want three addresses", got)
	}
}

// If the block to claim already exists, unknown to the watch, it counts as ours only if it
// belongs to this node, is in service, and is not about to leave.
func TestReconcileClaimsABlockThatExists(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.PodIPBlock)
		want   string // first address of the block that is published
	}{
		"ours, from a write whose answer was lost": {func(*v1alpha1.PodIPBlock) {}, "10.0.0.1"},
		"another node's":  {func(k *v1alpha1.PodIPBlock) { k.Spec.NodeName = "m" }, "10.0.0.5"},
		"of another pool": {func(k *v1alpha1.PodIPBlock) { k.Spec.PoolName = "q" }, "10.0.0.5"},
		"ours, and draining": {
			func(k *v1alpha1.PodIPBlock) {
				crd.SetBlockPhase(k, ipalloc.Draining, expand.Deleted, "x", fixtures.Noon())
			}, "10.0.0.5",
		},
		"ours, and cooling down": {
			func(k *v1alpha1.PodIPBlock) {
				crd.SetBlockPhase(k, ipalloc.CoolingDown, expand.Returned, "x", fixtures.Noon())
			}, "10.0.0.5",
		},
		"ours, and being deleted": {func(k *v1alpha1.PodIPBlock) { *k = *fixtures.BeingDeleted(k) }, "10.0.0.5"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			existing := inService("10.0.0.0/30")
			test.change(existing)
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/29"), bare(), existing)
			b.Late = existing.Name
			b.restart()
			held, shown := b.r.Ledger, b.ReadBlock(existing)
			b.once("get PodIPBlock", func() {
				held.Upsert(shown)
			})
			b.step()
			got := b.published()
			if len(got) == 0 || !slices.Contains(got, test.want) || test.want == "10.0.0.5" && slices.Contains(got, "10.0.0.1") {
				t.Errorf("published %v, want %s and what follows", got, test.want)
			}
		})
	}
}

// A node with an exhausted pool is woken by any block freed from then on, even while it publishes
// its new one.
func TestReconcileStarvesAsSoonAsThePoolIsExhausted(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), bare())
	b.pods(3)
	published := false
	b.Before = func(call string) {
		if call == "patch CiliumNode" {
			published = true
			b.r.Awaiting.Wake(ipalloc.IPv4, []string{"p"})
		}
	}
	var woken []string
	b.r.Awaiting.Changed = func(nodes []string) { woken = append(woken, nodes...) }
	b.step()
	if !published || !slices.Equal(woken, []string{"n"}) {
		t.Errorf("published: %t; then woken: %v, want n", published, woken)
	}
}

// A node that was woken in vain is woken by blocks freed while it looks.
func TestReconcileListensWhileItLooks(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), bare())
	b.pods(3)
	b.settle()
	if got := b.r.Awaiting.Wake(ipalloc.IPv4, []string{"p"}); !slices.Equal(got, []string{"n"}) {
		t.Fatalf("the first block to come free wakes %v", got)
	}
	var woken []string
	taken := b.r.Taken // which is called while the node's state is read
	b.r.Taken = func(pool string, f ipalloc.Family) int {
		woken = append(woken, b.r.Awaiting.Wake(ipalloc.IPv4, []string{pool})...)
		return taken(pool, f)
	}
	b.r.Awaiting.Changed = func(nodes []string) { woken = append(woken, nodes...) }
	b.step()
	if !slices.Equal(woken, []string{"n"}) {
		t.Errorf("what comes free meanwhile wakes %v, want n once", woken)
	}
}

// A node with waiting pods, or without a block, precedes nodes that lack a reserve.
func TestNodesThatStarveAreWokenFirst(t *testing.T) {
	held, started := inService("10.0.0.0/30"), bare()
	started.Spec.BootID = "boot"
	for name, test := range map[string]struct {
		block *v1alpha1.PodIPBlock
		pods  int
		first string
	}{
		"a reserve":          {held, 1, "before"},
		"pods without any":   {held, 5, "n"},
		"no block, no pods":  {foreignBlock("10.0.0.0/30"), 0, "n"},
		"no block, but pods": {foreignBlock("10.0.0.0/30"), 2, "n"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), started, test.block)
			b.pods(test.pods)
			b.r.Awaiting.Free = func(string, ipalloc.Family) uint64 { return 1 }
			b.r.Awaiting.Set("before", true, false, [2][]*crd.Pool{{b.r.Pools.Get("p")}})
			b.settle()
			if got := b.r.Awaiting.Wake(ipalloc.IPv4, []string{"p"}); !slices.Equal(got, []string{test.first}) {
				t.Errorf("woken are %v, want %s", got, test.first)
			}
		})
	}
}

// A claim with a lost response that is not tried again ends as soon as the API server reports that
// there is no such block.
func TestReconcileEndsTheDoubtAboutAClaim(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), bare())
	b.Fate = func(write string) fakeapi.Fate {
		if write == "create PodIPBlock" {
			return fakeapi.Refused // no watch event reports it
		}
		return fakeapi.Done
	}
	if _, err := b.reconcile(); err == nil {
		t.Fatal("the failure went unnoticed")
	}
	if got := b.r.Ledger.UnknownClaims("n"); len(got) != 1 {
		t.Fatalf("in doubt about %v", got)
	}
	b.Fate = func(string) fakeapi.Fate { return fakeapi.Done }
	deleted := fixtures.BeingDeleted(fixtures.Node())
	b.must(b.API.Delete(t.Context(), deleted))
	b.settle()
	if got := b.r.Ledger.UnknownClaims("n"); len(got) != 0 {
		t.Errorf("still in doubt about %v", got)
	}
	if n := b.r.Ledger.Free(ipalloc.Cut{Ranges: fixtures.Prefixes("10.0.0.0/30"), BlockBits: 30}); n != 1 {
		t.Errorf("%d blocks are free, want 1", n)
	}
}

// Nodes that found the pool exhausted because of it then look again.
func TestEndOfADoubtWakesTheStarving(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), bare())
	woken := 0
	if _, _, err := b.r.Ledger.Claim(ipalloc.IPv4, "n", "", b.r.Pools.Match(nil)); err != nil {
		t.Fatal(err)
	}
	b.r.Ledger.Changed = func(freed, _ []netip.Prefix) { woken += len(freed) }
	b.r.Ledger.MarkUnknown("n", fixtures.Prefix("10.0.0.0/30"))
	if err := b.r.Blocks.resolveUnknown(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	if woken != 1 {
		t.Errorf("woken %d times, want once", woken)
	}
}

// A block's update is conditional on the version of the decision.
func TestHeldBlockIsWhatWasDecidedOn(t *testing.T) {
	get := func(b *bed) *v1alpha1.PodIPBlock {
		obj := b.object("10.0.0.0-30")
		return obj
	}
	newCase := func(t *testing.T) (*bed, crd.Block) {
		b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), inService("10.0.0.0/30"))
		return b, b.ReadBlock(get(b))
	}
	change := func(b *bed) {
		obj := get(b)
		obj.Annotations = map[string]string{"a": "b"}
		b.must(b.API.Update(b.T.Context(), obj))
	}
	t.Run("it is as it was", func(t *testing.T) {
		b, known := newCase(t)
		if _, err := b.r.Blocks.object(t.Context(), known); err != nil {
			t.Error(err)
		}
	})
	t.Run("the API server and the cache have a newer one", func(t *testing.T) {
		b, known := newCase(t)
		change(b)
		if obj, err := b.r.Blocks.object(t.Context(), known); err == nil {
			t.Errorf("got version %s, decided on %s", obj.ResourceVersion, known.ResourceVersion)
		}
	})
	t.Run("the cache has an older one", func(t *testing.T) {
		b, _ := newCase(t)
		old := get(b)
		change(b)
		known := b.ReadBlock(get(b))
		b.r.Cache = readerFunc(func(obj client.Object) error { *obj.(*v1alpha1.PodIPBlock) = *old; return nil })
		obj, err := b.r.Blocks.object(t.Context(), known)
		if err != nil || obj.ResourceVersion != known.ResourceVersion {
			t.Errorf("got %v, %v; want version %s", obj, err, known.ResourceVersion)
		}
	})
}
