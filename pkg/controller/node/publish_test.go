package node

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// notInTime is a watch that delivers no event within the time that a claim waits.
func notInTime(context.Context, types.UID) error { return context.DeadlineExceeded }

// A claim is published only after the watch has delivered it, now or later.
func TestReconcilePublishesNoClaimBeforeTheWatchShowsIt(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	shown := b.r.Blocks.WaitForCache
	b.r.Blocks.WaitForCache, b.Blind = notInTime, true
	for _, when := range []string{"as it is claimed", "at the next look"} {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		if v := b.CiliumNode(); len(v.Pool) > 0 || len(v.PodCIDRs) > 0 {
			t.Errorf("%s: published %v of %v", when, v.Pool, v.PodCIDRs)
		}
	}
	blocks := b.Blocks()
	if len(blocks) != 2 {
		t.Fatalf("blocks are %+v", blocks)
	}
	b.r.Blocks.WaitForCache, b.Blind = shown, false
	for _, k := range blocks {
		b.r.Ledger.Upsert(k)
	}
	b.settle()
	if v := b.CiliumNode(); len(v.Pool) != 4 || len(b.Blocks()) != 2 {
		t.Errorf("once shown: pool %v of %d blocks; want four addresses of two", v.Pool, len(b.Blocks()))
	}
}

// If the watch delivers a claim along with a block of another size that overlaps it, no address of
// the claim is published.
func TestReconcilePublishesNoClaimThatOverlaps(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b.Before = func(call string) {
		if call == "create PodIPBlock" {
			b.Before = func(string) {}
			b.r.Ledger.Upsert(fixtures.Block("10.0.0.0/29", "q", "m", 1))
		}
	}
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if v := b.CiliumNode(); len(v.Pool) > 0 || len(v.PodCIDRs) > 0 {
		t.Errorf("published %v of %v", v.Pool, v.PodCIDRs)
	}
}

// A block that is found to overlap another only after it was read live is not published without
// its podCIDR; the node is reconciled again.
func TestReconcilePublishesNothingItMayNotList(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), fixtures.CiliumNode("n", ""), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b.Before = func(call string) {
		if call == "get PodIPBlock" {
			b.r.Ledger.Upsert(fixtures.Block("10.0.0.0/29", "q", "m", 1))
		}
	}
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if v := b.CiliumNode(); len(v.Pool) > 0 || len(v.PodCIDRs) > 0 {
		t.Errorf("published %v of %v", v.Pool, v.PodCIDRs)
	}
	if !slices.Contains(b.Calls, "get PodIPBlock") {
		t.Error("nothing was to be published anyway")
	}
}

// A block that is gone is not added to podCIDRs even if its addresses are published, as if they
// were of a block that the watch has not delivered.
func TestReconcileListsNothingThatIsGone(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), fixtures.Publishing(fixtures.CiliumNode("n", ""), "10.0.0.1", "10.0.0.2"))
	b.r.Ledger.Upsert(b.ReadBlock(fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)))
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if v := b.CiliumNode(); len(v.PodCIDRs) > 0 {
		t.Errorf("podCIDRs are %v", v.PodCIDRs)
	}
	if !slices.Contains(b.Calls, "get PodIPBlock") {
		t.Errorf("it was not read live: %v", b.Calls)
	}
}

// The published addresses of a block that overlaps another stay. No address is added to it even if
// it is in use, and it is not added to podCIDRs.
func TestReconcileAddsNothingToABlockThatOverlaps(t *testing.T) {
	tests := map[string]struct {
		podCIDRs, pool, used []string
	}{
		"listed, and an address in use has lost its place": {[]string{"10.0.0.0/30"}, []string{"10.0.0.1"}, []string{"10.0.0.2"}},
		"published, and not listed":                        {nil, []string{"10.0.0.1"}, nil},
		"neither":                                          {nil, nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cn := fixtures.Publishing(fixtures.CiliumNode("n", "", test.podCIDRs...), test.pool...)
			cn.Status.IPAM.Used = fixtures.AllocationMap(test.used...)
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), cn, fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
			b.r.Ledger.Upsert(fixtures.Block("10.0.0.0/29", "q", "m", 1))
			if _, err := b.reconcile(); err != nil {
				t.Fatal(err)
			}
			v := b.CiliumNode()
			if len(v.Pool) != len(test.pool) || v.Lists(fixtures.Prefix("10.0.0.0/30")) != (len(test.podCIDRs) > 0) {
				t.Errorf("pool %v, podCIDRs %v", v.Pool, v.PodCIDRs)
			}
		})
	}
}

// A block that overlaps one published earlier returns its addresses.
func TestReconcileReleasesABlockThatOverlaps(t *testing.T) {
	cn := fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.8/30"), "10.0.0.1", "10.0.0.9")
	cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.9")
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), cn, fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.8/30", ipalloc.InService))
	b.r.Ledger.Upsert(fixtures.Block("10.0.0.0/29", "q", "m", 1))
	b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
	b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if got := b.CiliumNode().Release; got[fixtures.Addrs("10.0.0.1")[0]] != expand.Marked {
		t.Errorf("release entries are %v", got)
	}
}

// An address that another node's CiliumNode names is published again only if it is in use here.
func TestReconcilePublishesNothingNamedElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		used []string
		want []string
	}{
		"not in use":  {nil, []string{"10.0.0.1"}},
		"in use here": {[]string{"10.0.0.2"}, []string{"10.0.0.1", "10.0.0.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			cn := fixtures.Publishing(fixtures.CiliumNode("n", ""))
			cn.Status.IPAM.Used = fixtures.AllocationMap(test.used...)
			other := fixtures.Publishing(fixtures.CiliumNode("m", ""), "10.0.0.2")
			b := newBed(t, []client.Object{fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), cn, other, fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)}...)
			b.settle()
			var got []string
			for a := range b.CiliumNode().Pool {
				got = append(got, a.String())
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("published %v, want %v", got, test.want)
			}
		})
	}
}

// Addresses of a claim that another node's CiliumNode names by the time the watch delivers the
// claim are not published.
func TestReconcilePublishesNothingOfAClaimNamedElsewhere(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"))
	shown := b.r.Blocks.WaitForCache
	b.r.Blocks.WaitForCache = func(ctx context.Context, uid types.UID) error {
		b.Watch()
		b.r.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.Publishing(fixtures.CiliumNode("m", ""), "10.0.0.2")))
		return shown(ctx, uid)
	}
	b.settle()
	if v := b.CiliumNode(); len(b.Blocks()) != 1 || len(v.Pool) != 1 || !v.Publishes(fixtures.Addrs("10.0.0.1")[0]) {
		t.Errorf("published %v of %v, want 10.0.0.1 alone", v.Pool, b.Blocks())
	}
}

// Nor are addresses of an old block that it names by the time that block has been read live.
func TestReconcilePublishesNothingNamedDuringTheLiveRead(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"),
		fixtures.Publishing(fixtures.CiliumNode("n", "")), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b.Before = func(call string) {
		if call == "get PodIPBlock" {
			b.r.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.Publishing(fixtures.CiliumNode("m", ""), "10.0.0.2")))
		}
	}
	b.settle()
	if v := b.CiliumNode(); len(v.Pool) != 1 || !v.Publishes(fixtures.Addrs("10.0.0.1")[0]) {
		t.Errorf("published %v, want 10.0.0.1 alone", v.Pool)
	}
}

// A claim that is gone by the time the watch has delivered it is not published: others may have
// its addresses.
func TestReconcilePublishesNoClaimThatIsGoneAgain(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b.r.Blocks.WaitForCache = func(_ context.Context, uid types.UID) error {
		for _, k := range b.Blocks() {
			if k.UID == uid {
				b.r.Ledger.Remove(k)
			}
		}
		return nil
	}
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if v := b.CiliumNode(); len(v.Pool) > 0 || len(v.PodCIDRs) > 0 {
		t.Errorf("published %v of %v", v.Pool, v.PodCIDRs)
	}
}

// A block stays with its node, and stays published, when an older pool comes to assign its
// range. New blocks come from the older pool, beside it.
func TestReconcileKeepsBlockOfAnOverlappedPool(t *testing.T) {
	cn := fixtures.Publishing(fixtures.CiliumNode("n", ""), "10.0.0.1", "10.0.0.2")
	cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, fixtures.PodCIDR("10.0.0.0/30"))
	cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1", "10.0.0.2")
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 2, "10.0.0.0/28"), fixtures.PodIPPool("older", 1, "10.0.0.0/28"), cn,
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
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
