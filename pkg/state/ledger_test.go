package state

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A pool's blocks are exactly its own, after any additions and removals.
func TestPoolBlocks(t *testing.T) {
	l := ReadyLedger(fixtures.Block("10.0.0.0/30", "p", "n", 1), fixtures.Block("10.0.0.4/30", "q", "n", 2), fixtures.Block("10.0.0.8/30", "p", "m", 3))
	walk := func(pool string) (out []string) {
		for b := range l.PoolBlocks(pool) {
			out = append(out, b.CIDR.String())
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff([]string{"10.0.0.0/30", "10.0.0.8/30"}, walk("p")); diff != "" {
		t.Error(diff)
	}
	l.Remove(fixtures.Block("10.0.0.0/30", "p", "n", 1))
	l.Upsert(fixtures.At(fixtures.Block("10.0.0.8/30", "p", "m", 3), 5, ipalloc.Draining))
	l.Upsert(fixtures.Block("10.0.0.4/30", "p", "n", 6)) // recreated, of another pool
	if diff := cmp.Diff([]string{"10.0.0.4/30", "10.0.0.8/30"}, walk("p")); diff != "" || len(walk("q")) > 0 || len(l.byPool) != 1 {
		t.Errorf("%s; q has %v, the index %d pools", diff, walk("q"), len(l.byPool))
	}
}

// The blocks of a pool are read in parts, so the ledger may change meanwhile: a deleted block is
// left out, a changed one is included, and none appears twice.
func TestPoolBlocksWhileTheyChange(t *testing.T) {
	const all = 4 * partSize
	block := func(i int) crd.Block {
		return fixtures.Block(fmt.Sprintf("10.0.%d.%d/30", i/64, i%64*4), "p", "n", i+1)
	}
	l, seen := ReadyLedger(), map[netip.Prefix]crd.Block{}
	for i := range all {
		l.Upsert(block(i))
	}
	changed, deleted := block(all-2), block(all-1)
	for b := range l.PoolBlocks("p") {
		if _, twice := seen[b.CIDR]; twice {
			t.Fatalf("%s is there twice", b.CIDR)
		}
		if seen[b.CIDR] = b; len(seen) == 1 {
			l.Upsert(fixtures.At(changed, all+1, ipalloc.Draining))
			l.Remove(deleted)
			l.Upsert(block(all))
		}
	}
	if _, there := seen[deleted.CIDR]; there || len(seen) != all-1 || seen[changed.CIDR].Phase != ipalloc.Draining {
		t.Errorf("%d of %d blocks, %+v", len(seen), all, seen[changed.CIDR])
	}
}

// The order of our own writes' and the watch's reports of a block must not matter.
func TestLedgerOrderOfNews(t *testing.T) {
	const cidr = "10.0.0.0/30"
	first := fixtures.Block(cidr, "p", "a", 1)
	second := fixtures.Block(cidr, "p", "b", 9) // the same addresses, claimed again
	tests := map[string]struct {
		news func(l *Ledger)
		want []crd.Block // of CIDR; none or one
	}{
		"shown":               {func(l *Ledger) { l.Upsert(first) }, []crd.Block{first}},
		"written, then shown": {func(l *Ledger) { l.Assume(first); l.Upsert(first) }, []crd.Block{first}},
		"shown, then written": {func(l *Ledger) { l.Upsert(first); l.Assume(first) }, []crd.Block{first}},
		"an older version is shown": {func(l *Ledger) {
			l.Assume(fixtures.At(first, 3, ipalloc.Draining))
			l.Upsert(fixtures.At(first, 2, ipalloc.InService))
		}, []crd.Block{fixtures.At(first, 3, ipalloc.Draining)}},
		"gone":                   {func(l *Ledger) { l.Upsert(first); l.Remove(fixtures.At(first, 2, ipalloc.InService)) }, nil},
		"gone before our answer": {func(l *Ledger) { l.Upsert(first); l.Remove(fixtures.At(first, 2, ipalloc.InService)); l.Assume(first) }, nil},
		"gone, of which the watch shows only an old version": {func(l *Ledger) {
			l.Upsert(first)
			l.Assume(fixtures.At(first, 5, ipalloc.Draining))
			l.Remove(first)
		}, nil},
		"claimed anew, old one gone late": {func(l *Ledger) {
			l.Upsert(first)
			l.Assume(second)
			l.Remove(fixtures.At(first, 8, ipalloc.CoolingDown))
		}, []crd.Block{second}},
		"claimed anew, shown at once": {func(l *Ledger) { l.Upsert(first); l.Upsert(second) }, []crd.Block{second}},
		"deleted by us, an older version shown, then gone": {func(l *Ledger) {
			l.Upsert(first)
			l.Remove(first)
			l.Upsert(fixtures.At(first, 2, ipalloc.CoolingDown))
			l.Remove(fixtures.At(first, 3, ipalloc.CoolingDown))
		}, nil},
		"deleted by us, an older version shown": {func(l *Ledger) {
			l.Upsert(first)
			l.Remove(first)
			l.Upsert(fixtures.At(first, 2, ipalloc.CoolingDown))
		}, nil},
		"deleted by us after it was claimed anew": {func(l *Ledger) { l.Upsert(second); l.Remove(first) }, []crd.Block{second}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := ReadyLedger()
			test.news(l)
			var got []crd.Block
			for _, node := range []string{"a", "b"} {
				got = append(got, l.NodeBlocks(node)...)
			}
			if diff := cmp.Diff(test.want, got, fixtures.CompareNetip()); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
			owner, held := l.space.Owner(fixtures.Prefix(cidr))
			if held != (len(test.want) == 1) {
				t.Fatalf("space says held %t by %v", held, owner)
			}
			if held && (owner.Node != test.want[0].Node || owner.Phase != test.want[0].Phase) {
				t.Errorf("space says %v in phase %s", owner, owner.Phase)
			}
		})
	}
}

func TestLedgerClaim(t *testing.T) {
	only := func(t *testing.T) []*crd.Pool {
		return []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/30"))}
	}
	claim := func(t *testing.T, l *Ledger, node string) bool {
		t.Helper()
		cidr, _, err := l.Claim(ipalloc.IPv4, node, "", only(t))
		if err != nil && !errors.Is(err, ipalloc.ErrExhausted) {
			t.Fatal(err)
		}
		return err == nil && cidr == fixtures.Prefix("10.0.0.0/30")
	}
	t.Run("a claim is taken until it is released", func(t *testing.T) {
		l := ReadyLedger()
		if !claim(t, l, "a") || claim(t, l, "b") {
			t.Fatal("two nodes claimed one block")
		}
		l.Forget("a", fixtures.Prefix("10.0.0.0/30"))
		if !claim(t, l, "b") {
			t.Error("an unclaimed block cannot be claimed")
		}
	})
	t.Run("a claim in doubt is not free for another node", func(t *testing.T) {
		l := ReadyLedger()
		claim(t, l, "a")
		l.MarkUnknown("a", fixtures.Prefix("10.0.0.0/30"))
		if claim(t, l, "b") || claim(t, l, "a") {
			t.Error("it was claimed again")
		}
	})
	t.Run("an answer ends a doubt, for whomever it speaks", func(t *testing.T) {
		for _, owner := range []string{"a", "b"} {
			l := ReadyLedger()
			claim(t, l, "a")
			l.MarkUnknown("a", fixtures.Prefix("10.0.0.0/30"))
			l.Assume(fixtures.Block("10.0.0.0/30", "p", owner, 3))
			if o, _ := l.space.Owner(fixtures.Prefix("10.0.0.0/30")); o.Node != owner || len(l.UnknownClaims("a")) != 0 {
				t.Errorf("held by %v, in doubt %v", o, l.UnknownClaims("a"))
			}
		}
	})
	t.Run("the watch ends no doubt: it may show an older block", func(t *testing.T) {
		for _, owner := range []string{"a", "b"} {
			l := ReadyLedger()
			older := fixtures.Block("10.0.0.0/30", "p", owner, 3)
			l.Upsert(older)
			l.Remove(older)
			claim(t, l, "a")
			l.Upsert(fixtures.Block("10.0.0.0/30", "p", owner, 4))
			l.MarkUnknown("a", fixtures.Prefix("10.0.0.0/30"))
			l.Remove(older)
			if got := l.UnknownClaims("a"); len(got) != 1 {
				t.Errorf("in doubt about %v", got)
			}
		}
	})
	t.Run("a doubt released is free", func(t *testing.T) {
		l := ReadyLedger()
		claim(t, l, "a")
		l.MarkUnknown("a", fixtures.Prefix("10.0.0.0/30"))
		l.Forget("a", fixtures.Prefix("10.0.0.0/30"))
		if !claim(t, l, "b") {
			t.Error("still taken")
		}
	})
	t.Run("no doubt about what another node has claimed since", func(t *testing.T) {
		l := ReadyLedger()
		claim(t, l, "a")
		other := fixtures.Block("10.0.0.0/30", "p", "b", 3)
		l.Upsert(other) // another process claimed it
		l.Remove(other)
		if !claim(t, l, "c") {
			t.Fatal("a block that is gone cannot be claimed")
		}
		l.MarkUnknown("a", fixtures.Prefix("10.0.0.0/30"))
		l.Forget("a", fixtures.Prefix("10.0.0.0/30"))
		if claim(t, l, "d") {
			t.Error("two nodes claimed one block")
		}
	})
	t.Run("not before everything has been read", func(t *testing.T) {
		if _, _, err := NewLedger().Claim(ipalloc.IPv4, "a", "", only(t)); !errors.Is(err, ipalloc.ErrNotReady) {
			t.Errorf("got %v, want ErrNotReady", err)
		}
	})
	t.Run("paused pools are passed over, and the next one serves", func(t *testing.T) {
		full, paused, next := fixtures.PodIPPool("full", 1, "10.0.0.0/30"), fixtures.PodIPPool("paused", 1, "10.0.1.0/30"), fixtures.PodIPPool("next", 1, "10.0.2.0/30")
		paused.Spec.Paused = true
		l := ReadyLedger(fixtures.Block("10.0.0.0/30", "full", "b", 1))
		cidr, pool, err := l.Claim(ipalloc.IPv4, "a", "", []*crd.Pool{fixtures.PoolOf(t, full), fixtures.PoolOf(t, paused), fixtures.PoolOf(t, next)})
		if err != nil || pool.Name != "next" || cidr != fixtures.Prefix("10.0.2.0/30") {
			t.Errorf("got %s, %v, %v", cidr, pool, err)
		}
	})
}

// Before the response to its creation is processed, a block may already be deleted and its
// addresses claimed by another node.
func TestLedgerWroteOfABlockGoneAgain(t *testing.T) {
	pools := []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/30"))}
	l := ReadyLedger()
	if _, _, err := l.Claim(ipalloc.IPv4, "a", "", pools); err != nil {
		t.Fatal(err)
	}
	b := fixtures.Block("10.0.0.0/30", "p", "a", 10)
	l.Remove(fixtures.At(b, 11, ipalloc.InService)) // a broken watch never showed it
	l.Assume(b)
	if _, held := l.space.Owner(b.CIDR); held || len(l.NodeBlocks("a")) > 0 {
		t.Error("the block stays taken though no node holds it")
	}
}

func TestLedgerWaitShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ReadyLedger()
		b, other := fixtures.Block("10.0.0.0/30", "p", "a", 10), fixtures.Block("10.0.0.4/30", "p", "a", 20)
		done := make(chan error, 1)
		go func() { done <- l.WaitShown(t.Context(), b.UID) }()
		l.Assume(b)
		l.Upsert(other) // a later one, as a relist may show them
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal("came back before the watch had shown the block")
		}
		if l.Shown(b.UID) || !l.Shown(other.UID) {
			t.Error("Shown does not report what the watch has shown")
		}
		l.Upsert(b)
		if err := <-done; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.WaitShown(ctx, "never"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that the context ended", err)
		}
		l.Remove(b)
		if err := l.WaitShown(t.Context(), b.UID); err != nil || l.Shown(b.UID) {
			t.Errorf("waiting for what is gone: %v; shown %t", err, l.Shown(b.UID))
		}
	})
}

func TestLedgerWaitShownByTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ReadyLedger()
		b := fixtures.Block("10.0.0.0/30", "p", "a", 10)
		first, cancel := context.WithCancel(t.Context())
		ended, done := make(chan error, 1), make(chan error, 1)
		go func() { ended <- l.WaitShown(first, b.UID) }()
		go func() { done <- l.WaitShown(t.Context(), b.UID) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that the context ended", err)
		}
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal("the other came back when the first gave up")
		}
		before := l.await(b.UID)
		l.Upsert(fixtures.Block("10.0.0.4/30", "p", "a", 9))
		if l.await(b.UID) != before {
			t.Error("another block wakes those who wait for this one")
		}
		l.Upsert(b)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(l.awaited) > 0 {
			t.Errorf("%d waits stay behind", len(l.awaited))
		}
	})
}

func TestLedgerOverlaps(t *testing.T) {
	l := ReadyLedger(fixtures.Block("10.0.0.0/24", "p", "a", 1), fixtures.Block("10.0.0.32/27", "p", "b", 2), fixtures.Block("10.0.1.0/24", "p", "b", 3))
	for cidr, want := range map[string]int{"10.0.0.0/24": 1, "10.0.0.32/27": 1, "10.0.1.0/24": 0, "10.0.0.0/16": 3} {
		if got := l.Overlaps(fixtures.Prefix(cidr)); len(got) != want {
			t.Errorf("%s overlaps %v, want %d", cidr, got, want)
		}
	}
	l.Remove(fixtures.Block("10.0.0.32/27", "p", "b", 2))
	if got := l.Overlaps(fixtures.Prefix("10.0.0.0/24")); len(got) != 0 {
		t.Errorf("still overlaps %v", got)
	}
}

func TestLedgerForgetsMovedOnceInService(t *testing.T) {
	b := fixtures.Block("10.0.0.0/30", "p", "a", 1)
	cooling := fixtures.At(b, 2, ipalloc.CoolingDown)
	l := ReadyLedger(cooling)
	l.MarkFenced(cooling)
	if !l.Fenced(cooling) {
		t.Fatal("not noted")
	}
	l.Upsert(fixtures.At(b, 3, ipalloc.InService)) // another leader took it back, and may publish it
	l.MarkFenced(cooling)                          // by a write decided on before
	again := fixtures.At(b, 4, ipalloc.CoolingDown)
	l.Upsert(again)
	if l.Fenced(again) {
		t.Error("a change before the block was last in service counts as one after it left")
	}
}

// CIDRs that CiliumNodes name are taken as long as any of them names them.
func TestLedgerForeign(t *testing.T) {
	pools := []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/29"))}
	cut, _ := pools[0].Cut(ipalloc.IPv4)
	l := ReadyLedger()
	expectFree := func(when string, want uint64) {
		t.Helper()
		if got := l.Free(cut); got != want {
			t.Errorf("%s: %d blocks are free, want %d", when, got, want)
		}
	}
	expectFree("at first", 2)
	l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "1", "10.0.0.0/30")))
	l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("m", "2", "10.0.0.0/30")))
	expectFree("two name one block", 1)
	if freed := l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("m", "3"))); !freed {
		t.Error("nothing was freed")
	}
	expectFree("one still names it", 1)

	odd := fixtures.CiliumNode("m", "4")
	odd.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.5", "::ffff:10.0.0.6", "x")
	l.UpsertCiliumNode(ciliumnode.NewView(odd))
	expectFree("a single address of the other block is named", 0)
	l.RemoveCiliumNode(ciliumnode.NewView(odd))
	expectFree("its CiliumNode is gone, and may come back", 0)
	l.ForgetCiliumNode("m")
	expectFree("it is forgotten", 1)
	l.ForgetCiliumNode("n")
	expectFree("the other is there", 1)
	l.RemoveCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "1", "10.0.0.0/30")))
	l.ForgetCiliumNode("n")
	expectFree("all are forgotten", 2)

	l.Upsert(fixtures.Block("10.0.0.0/30", "p", "n", 5))
	own := fixtures.CiliumNode("n", "6")
	own.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.1", "10.0.0.2")
	l.UpsertCiliumNode(ciliumnode.NewView(own))
	l.Remove(fixtures.Block("10.0.0.0/30", "p", "n", 5))
	l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "7")))
	expectFree("a block that came and went", 2)
}

// A block object that is removed by force stays taken while its CiliumNode names it, as of the last
// write even if the watch is late.
func TestLedgerBlockRemovedByForce(t *testing.T) {
	upsert := func(version string, blocks ...string) func(*Ledger) {
		return func(l *Ledger) { l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", version, blocks...))) }
	}
	tests := map[string]struct {
		then func(l *Ledger)
		want uint64
	}{
		"the watch shows an older version": {upsert("7"), 0},
		"the watch shows the write":        {upsert("8", "10.0.0.0/30"), 0},
		"it is published no longer":        {upsert("9"), 1},
		"the CiliumNode is forgotten": {func(l *Ledger) {
			l.RemoveCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "9")))
			l.ForgetCiliumNode("n")
		}, 1},
		"another block goes": {func(l *Ledger) {
			other := fixtures.Block("10.0.1.0/30", "p", "n", 3)
			l.Upsert(other)
			l.Remove(other)
		}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			held := fixtures.Block("10.0.0.0/30", "p", "n", 2)
			l := ReadyLedger(held)
			upsert("5")(l)
			upsert("8", "10.0.0.0/30")(l)
			l.Remove(held)
			test.then(l)
			if got := l.Free(ipalloc.Cut{Ranges: fixtures.Prefixes("10.0.0.0/30"), BlockBits: 30}); got != test.want {
				t.Errorf("%d are free, want %d", got, test.want)
			}
		})
	}
}
