package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// The order in which our own writes and the watch tell of a block must not
// matter.
func TestLedgerOrderOfNews(t *testing.T) {
	const cidr = "10.0.0.0/30"
	first := block(cidr, "p", "a", 1)
	second := block(cidr, "p", "b", 9) // the same addresses, claimed anew
	tests := map[string]struct {
		news func(l *Ledger)
		want []crd.Block // of CIDR; none or one
	}{
		"shown":                     {func(l *Ledger) { l.Observed(first) }, []crd.Block{first}},
		"written, then shown":       {func(l *Ledger) { l.Wrote(first); l.Observed(first) }, []crd.Block{first}},
		"shown, then written":       {func(l *Ledger) { l.Observed(first); l.Wrote(first) }, []crd.Block{first}},
		"an older version is shown": {func(l *Ledger) { l.Wrote(at(first, 3, ipalloc.Draining)); l.Observed(at(first, 2, ipalloc.InService)) }, []crd.Block{at(first, 3, ipalloc.Draining)}},
		"gone":                      {func(l *Ledger) { l.Observed(first); l.Gone(at(first, 2, ipalloc.InService)) }, nil},
		"gone before our answer":    {func(l *Ledger) { l.Observed(first); l.Gone(at(first, 2, ipalloc.InService)); l.Wrote(first) }, nil},
		"gone, of which the watch shows only an old version": {func(l *Ledger) {
			l.Observed(first)
			l.Wrote(at(first, 5, ipalloc.Draining))
			l.Gone(first)
		}, nil},
		"claimed anew, old one gone late": {func(l *Ledger) { l.Observed(first); l.Wrote(second); l.Gone(at(first, 8, ipalloc.CoolingDown)) }, []crd.Block{second}},
		"claimed anew, shown at once":     {func(l *Ledger) { l.Observed(first); l.Observed(second) }, []crd.Block{second}},
		"deleted by us, an older version shown, then gone": {func(l *Ledger) {
			l.Observed(first)
			l.Deleted(first)
			l.Observed(at(first, 2, ipalloc.CoolingDown))
			l.Gone(at(first, 3, ipalloc.CoolingDown))
		}, nil},
		"deleted by us, an older version shown": {func(l *Ledger) {
			l.Observed(first)
			l.Deleted(first)
			l.Observed(at(first, 2, ipalloc.CoolingDown))
		}, nil},
		"deleted by us after it was claimed anew": {func(l *Ledger) { l.Observed(second); l.Deleted(first) }, []crd.Block{second}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := readyLedger()
			test.news(l)
			var got []crd.Block
			for _, node := range []string{"a", "b"} {
				got = append(got, l.NodeBlocks(node)...)
			}
			if diff := cmp.Diff(test.want, got, compareNetip()); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
			owner, held := l.space.Owner(prefix(cidr))
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
	only := func(t *testing.T) []*crd.Pool { return []*crd.Pool{poolOf(t, podIPPool("p", 1, "10.0.0.0/30"))} }
	claim := func(t *testing.T, l *Ledger, node string) bool {
		t.Helper()
		cidr, _, err := l.Claim(ipalloc.IPv4, node, only(t))
		if err != nil && !errors.Is(err, ipalloc.ErrExhausted) {
			t.Fatal(err)
		}
		return err == nil && cidr == prefix("10.0.0.0/30")
	}
	t.Run("a claim is taken until it is given up", func(t *testing.T) {
		l := readyLedger()
		if !claim(t, l, "a") || claim(t, l, "b") {
			t.Fatal("two nodes claimed one block")
		}
		l.Unclaim("a", prefix("10.0.0.0/30"))
		if !claim(t, l, "b") {
			t.Error("an unclaimed block cannot be claimed")
		}
	})
	t.Run("a doubtful claim is nobody else's", func(t *testing.T) {
		l := readyLedger()
		claim(t, l, "a")
		l.Unsure("a", prefix("10.0.0.0/30"))
		if claim(t, l, "b") || claim(t, l, "a") {
			t.Error("it was claimed again")
		}
	})
	t.Run("an answer ends a doubt, for whomever it speaks", func(t *testing.T) {
		for _, owner := range []string{"a", "b"} {
			l := readyLedger()
			claim(t, l, "a")
			l.Unsure("a", prefix("10.0.0.0/30"))
			l.Wrote(block("10.0.0.0/30", "p", owner, 3))
			if o, _ := l.space.Owner(prefix("10.0.0.0/30")); o.Node != owner || len(l.UnsureOf("a")) != 0 {
				t.Errorf("held by %v, in doubt %v", o, l.UnsureOf("a"))
			}
		}
	})
	t.Run("the watch ends no doubt: it may show an older block", func(t *testing.T) {
		for _, owner := range []string{"a", "b"} {
			l := readyLedger()
			older := block("10.0.0.0/30", "p", owner, 3)
			l.Observed(older)
			l.Deleted(older)
			claim(t, l, "a")
			l.Observed(block("10.0.0.0/30", "p", owner, 4))
			l.Unsure("a", prefix("10.0.0.0/30"))
			l.Gone(older)
			if got := l.UnsureOf("a"); len(got) != 1 {
				t.Errorf("in doubt about %v", got)
			}
		}
	})
	t.Run("a doubt given up is free", func(t *testing.T) {
		l := readyLedger()
		claim(t, l, "a")
		l.Unsure("a", prefix("10.0.0.0/30"))
		l.Unclaim("a", prefix("10.0.0.0/30"))
		if !claim(t, l, "b") {
			t.Error("still taken")
		}
	})
	t.Run("no doubt about what another node has claimed since", func(t *testing.T) {
		l := readyLedger()
		claim(t, l, "a")
		other := block("10.0.0.0/30", "p", "b", 3)
		l.Observed(other) // it was somebody else's
		l.Gone(other)
		if !claim(t, l, "c") {
			t.Fatal("a block that is gone cannot be claimed")
		}
		l.Unsure("a", prefix("10.0.0.0/30"))
		l.Unclaim("a", prefix("10.0.0.0/30"))
		if claim(t, l, "d") {
			t.Error("two nodes claimed one block")
		}
	})
	t.Run("not before everything has been read", func(t *testing.T) {
		if _, _, err := NewLedger().Claim(ipalloc.IPv4, "a", only(t)); !errors.Is(err, ipalloc.ErrNotReady) {
			t.Errorf("got %v, want ErrNotReady", err)
		}
	})
	t.Run("paused pools are passed over, and the next one serves", func(t *testing.T) {
		full, paused, next := podIPPool("full", 1, "10.0.0.0/30"), podIPPool("paused", 1, "10.0.1.0/30"), podIPPool("next", 1, "10.0.2.0/30")
		paused.Spec.Paused = true
		l := readyLedger(block("10.0.0.0/30", "full", "b", 1))
		cidr, pool, err := l.Claim(ipalloc.IPv4, "a", []*crd.Pool{poolOf(t, full), poolOf(t, paused), poolOf(t, next)})
		if err != nil || pool.Name != "next" || cidr != prefix("10.0.2.0/30") {
			t.Errorf("got %s, %v, %v", cidr, pool, err)
		}
	})
}

// A block can be gone again, and its addresses claimed by another node, before
// the answer to its creation is taken in.
func TestLedgerWroteOfABlockGoneAgain(t *testing.T) {
	pools := []*crd.Pool{poolOf(t, podIPPool("p", 1, "10.0.0.0/30"))}
	l := readyLedger()
	if _, _, err := l.Claim(ipalloc.IPv4, "a", pools); err != nil {
		t.Fatal(err)
	}
	b := block("10.0.0.0/30", "p", "a", 10)
	l.Gone(at(b, 11, ipalloc.InService)) // a broken watch never showed it
	l.Wrote(b)
	if _, held := l.space.Owner(b.CIDR); held || len(l.NodeBlocks("a")) > 0 {
		t.Error("the block stays taken though nobody holds it")
	}
}

func TestLedgerWaitShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := readyLedger()
		b, other := block("10.0.0.0/30", "p", "a", 10), block("10.0.0.4/30", "p", "a", 20)
		done := make(chan error, 1)
		go func() { done <- l.WaitShown(t.Context(), b.UID) }()
		l.Wrote(b)
		l.Observed(other) // a later one, as a relist may show them
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal("came back before the watch had shown the block")
		}
		if l.Shown(b.UID) || !l.Shown(other.UID) {
			t.Error("Shown does not tell what the watch has shown")
		}
		l.Observed(b)
		if err := <-done; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.WaitShown(ctx, "never"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that the context ended", err)
		}
		l.Gone(b)
		if err := l.WaitShown(t.Context(), b.UID); err != nil || l.Shown(b.UID) {
			t.Errorf("waiting for what is gone: %v; shown %t", err, l.Shown(b.UID))
		}
	})
}

func TestLedgerOverlaps(t *testing.T) {
	l := readyLedger(block("10.0.0.0/24", "p", "a", 1), block("10.0.0.32/27", "p", "b", 2), block("10.0.1.0/24", "p", "b", 3))
	for cidr, want := range map[string]int{"10.0.0.0/24": 1, "10.0.0.32/27": 1, "10.0.1.0/24": 0, "10.0.0.0/16": 3} {
		if got := l.Overlaps(prefix(cidr)); len(got) != want {
			t.Errorf("%s overlaps %v, want %d", cidr, got, want)
		}
	}
	l.Gone(block("10.0.0.32/27", "p", "b", 2))
	if got := l.Overlaps(prefix("10.0.0.0/24")); len(got) != 0 {
		t.Errorf("still overlaps %v", got)
	}
}

func TestLedgerForgetsMovedOnceInService(t *testing.T) {
	b := block("10.0.0.0/30", "p", "a", 1)
	rested := at(b, 2, ipalloc.CoolingDown)
	l := readyLedger(rested)
	l.SetMoved(rested)
	if !l.Moved(rested) {
		t.Fatal("not noted")
	}
	l.Observed(at(b, 3, ipalloc.InService)) // another leader took it back, and may publish it
	l.SetMoved(rested)                      // by a write decided on before
	again := at(b, 4, ipalloc.CoolingDown)
	l.Observed(again)
	if l.Moved(again) {
		t.Error("a change before the block was last in service counts as one after it left")
	}
}

func ciliumNode(name, version string, podCIDRs ...string) *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	for _, p := range podCIDRs {
		cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, podCIDR(p))
	}
	return cn
}

func TestLedgerBehind(t *testing.T) {
	tests := map[string]struct {
		news    func(l *Ledger)
		version string
		want    bool
	}{
		"nothing written":                    {func(*Ledger) {}, "", false},
		"our write not shown":                {func(l *Ledger) { l.WroteNode("n", "10") }, "9", true},
		"our write shown":                    {func(l *Ledger) { l.WroteNode("n", "10") }, "10", false},
		"past our write":                     {func(l *Ledger) { l.WroteNode("n", "10") }, "11", false},
		"made by us, not shown":              {func(l *Ledger) { l.WroteNode("n", "10") }, "", true},
		"an answer that comes late":          {func(l *Ledger) { l.WroteNode("n", "10"); l.WroteNode("n", "8") }, "9", true},
		"gone after our write":               {func(l *Ledger) { l.WroteNode("n", "10"); l.GoneNode(ciliumnode.Keep(ciliumNode("n", "11"))) }, "", false},
		"gone, seen live":                    {func(l *Ledger) { l.WroteNode("n", "10"); l.Unwrite("n") }, "", false},
		"another one gone before our write":  {func(l *Ledger) { l.WroteNode("n", "10"); l.GoneNode(ciliumnode.Keep(ciliumNode("n", "9"))) }, "", true},
		"gone and forgotten":                 {func(l *Ledger) { l.WroteNode("n", "10"); l.ForgetNode("n") }, "", false},
		"versions that cannot be compared":   {func(l *Ledger) { l.WroteNode("n", "abc") }, "xyz", false},
		"of another node, which matters not": {func(l *Ledger) { l.WroteNode("m", "10") }, "1", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := readyLedger()
			test.news(l)
			if got := l.Behind("n", test.version); got != test.want {
				t.Errorf("Behind(%q) = %t", test.version, got)
			}
		})
	}
}

// What CiliumNodes name is taken, as long as one of them does.
func TestLedgerForeign(t *testing.T) {
	pools := []*crd.Pool{poolOf(t, podIPPool("p", 1, "10.0.0.0/29"))}
	cut, _ := pools[0].Cut(ipalloc.IPv4)
	l := readyLedger()
	expectFree := func(when string, want uint64) {
		t.Helper()
		if got := l.Free(cut); got != want {
			t.Errorf("%s: %d blocks are free, want %d", when, got, want)
		}
	}
	expectFree("at first", 2)
	l.ObservedNode(ciliumnode.Keep(ciliumNode("n", "1", "10.0.0.0/30")))
	l.ObservedNode(ciliumnode.Keep(ciliumNode("m", "2", "10.0.0.0/30")))
	expectFree("two name one block", 1)
	if freed := l.ObservedNode(ciliumnode.Keep(ciliumNode("m", "3"))); !freed {
		t.Error("nothing was freed")
	}
	expectFree("one still names it", 1)

	odd := ciliumNode("m", "4")
	odd.Spec.IPAM.Pool = allocationMap("10.0.0.5", "::ffff:10.0.0.6", "x")
	l.ObservedNode(ciliumnode.Keep(odd))
	expectFree("a single address of the other block is named", 0)
	l.GoneNode(ciliumnode.Keep(odd))
	expectFree("its CiliumNode is gone, and may come back", 0)
	l.ForgetNode("m")
	expectFree("it is gone for good", 1)
	l.ForgetNode("n")
	expectFree("the other is there", 1)
	l.GoneNode(ciliumnode.Keep(ciliumNode("n", "1", "10.0.0.0/30")))
	l.ForgetNode("n")
	expectFree("all are gone for good", 2)

	l.Observed(block("10.0.0.0/30", "p", "n", 5))
	own := ciliumNode("n", "6")
	own.Spec.IPAM.Pool = allocationMap("10.0.0.1", "10.0.0.2")
	l.ObservedNode(ciliumnode.Keep(own))
	l.Gone(block("10.0.0.0/30", "p", "n", 5))
	l.ObservedNode(ciliumnode.Keep(ciliumNode("n", "7")))
	expectFree("a block that came and went", 2)
}

// A block that somebody tears away stays taken until the watch of its CiliumNode has
// shown this process's last write, which may name it.
func TestLedgerTornAwayBehindItsCiliumNode(t *testing.T) {
	tests := map[string]struct {
		then   func(l *Ledger)
		want   uint64
		before string
	}{
		"the watch shows an older version": {func(l *Ledger) { l.ObservedNode(ciliumnode.Keep(ciliumNode("n", "7"))) }, 0, "5"},
		"the write names it":               {func(l *Ledger) { l.ObservedNode(ciliumnode.Keep(ciliumNode("n", "8", "10.0.0.0/30"))) }, 0, "5"},
		"the write does not":               {func(l *Ledger) { l.ObservedNode(ciliumnode.Keep(ciliumNode("n", "8"))) }, 1, "5"},
		"the watch has shown nothing yet":  {func(*Ledger) {}, 0, ""},
		"the CiliumNode is gone for good": {func(l *Ledger) {
			l.GoneNode(ciliumnode.Keep(ciliumNode("n", "9")))
			l.ForgetNode("n")
		}, 1, "5"},
		"the watch had shown all": {func(*Ledger) {}, 1, "8"},
		"another block goes": {func(l *Ledger) {
			other := block("10.0.1.0/30", "p", "n", 3)
			l.Observed(other)
			l.Deleted(other)
		}, 0, "5"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			held := block("10.0.0.0/30", "p", "n", 2)
			l := readyLedger(held)
			if test.before != "" {
				l.ObservedNode(ciliumnode.Keep(ciliumNode("n", test.before)))
			}
			l.WroteNode("n", "8")
			l.Gone(held)
			test.then(l)
			if got := l.Free(ipalloc.Cut{Ranges: prefixes("10.0.0.0/30"), BlockBits: 30}); got != test.want {
				t.Errorf("%d are free, want %d", got, test.want)
			}
		})
	}
}
