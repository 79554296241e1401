package state

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

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
	pools := []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, cidr))}
	tests := map[string]struct {
		news func(l *Ledger)
		want []crd.Block // of CIDR; none or one
	}{
		"an older version is shown": {func(l *Ledger) {
			l.Assume(fixtures.At(first, 3, ipalloc.Draining))
			l.Upsert(fixtures.At(first, 2, ipalloc.InService))
		}, []crd.Block{fixtures.At(first, 3, ipalloc.Draining)}},
		"gone before our answer, and never shown": {func(l *Ledger) {
			_, _, _ = l.Claim(ipalloc.IPv4, "a", "", pools)
			l.Remove(fixtures.At(first, 2, ipalloc.InService))
			l.Assume(first)
		}, nil},
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

// TestLedgerModel covers all else about claims.
func TestLedgerClaim(t *testing.T) {
	cidr := fixtures.Prefix("10.0.0.0/30")
	pool := fixtures.PodIPPool("p", 1, cidr.String())
	paused, next := fixtures.PodIPPool("paused", 1, "10.0.1.0/30"), fixtures.PodIPPool("next", 1, "10.0.2.0/30")
	paused.Spec.Paused = new(true)
	block, closed := fixtures.Block(cidr.String(), "p", "n", 1), fixtures.Block(cidr.String(), "p", "n", 1)
	closed.Closed = expand.Closed{Agent: "c", Since: fixtures.Noon()}
	tests := map[string]struct {
		news        func(l *Ledger)
		node, agent string
		pools       []*v1alpha1.PodIPPool // before pool; nil: none
		want        error
		from        string // the pool
	}{
		"free":                         {node: "n", from: "p"},
		"not before all has been read": {news: func(l *Ledger) { *l = *NewLedger() }, node: "n", want: ipalloc.ErrNotReady, from: "p"},
		"paused pools are passed over": {node: "n", pools: []*v1alpha1.PodIPPool{paused, next}, from: "next"},
		"full pools, too":              {news: func(l *Ledger) { l.Upsert(block) }, node: "m", pools: []*v1alpha1.PodIPPool{pool, next}, from: "next"},
		"the watch ends no doubt about it": {news: func(l *Ledger) {
			l.MarkUnknown("n", cidr)
			l.Upsert(block)
			l.Remove(block)
			if got := l.UnknownClaims("n"); len(got) != 1 {
				t.Errorf("in doubt about %v", got)
			}
		}, node: "m", from: "p"},
		"closed by its agent":             {news: func(l *Ledger) { l.Upsert(closed); l.Remove(closed) }, node: "n", agent: "c", want: ipalloc.ErrExhausted},
		"closed, and the agent restarted": {news: func(l *Ledger) { l.Upsert(closed); l.Remove(closed) }, node: "n", agent: "d", from: "p"},
		"closed by another node's agent":  {news: func(l *Ledger) { l.Upsert(closed); l.Remove(closed) }, node: "m", agent: "c", from: "p"},
		"closed, and passed over before": {news: func(l *Ledger) {
			l.Upsert(closed)
			l.Remove(closed)
			_, _, _ = l.Claim(ipalloc.IPv4, "n", "c", []*crd.Pool{fixtures.PoolOf(t, pool)})
		}, node: "m", from: "p"},
		"closed, before another node had it": {news: func(l *Ledger) {
			l.Upsert(closed)
			l.Remove(closed)
			l.Upsert(fixtures.Block(cidr.String(), "p", "m", 2))
			l.Remove(fixtures.Block(cidr.String(), "p", "m", 2))
		}, node: "n", agent: "c", want: ipalloc.ErrExhausted},
		"closed by both nodes that had it": {news: func(l *Ledger) {
			another := closed
			another.Node, another.UID, another.Closed.Agent = "m", "2", "d"
			for _, b := range []crd.Block{closed, another} {
				l.Upsert(b)
				l.Remove(b)
			}
		}, node: "n", agent: "c", want: ipalloc.ErrExhausted},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l, pools := ReadyLedger(), []*crd.Pool{}
			if test.news != nil {
				test.news(l)
			}
			for _, p := range append(test.pools, pool) {
				pools = append(pools, fixtures.PoolOf(t, p))
			}
			_, from, err := l.Claim(ipalloc.IPv4, test.node, test.agent, pools)
			if !errors.Is(err, test.want) || (from == nil) != (test.from == "") || from != nil && from.Name != test.from {
				t.Errorf("claimed from %v, %v; want %q, %v", from, err, test.from, test.want)
			}
		})
	}
}

// A block counts as closed if the agent that runs has closed an earlier one of its CIDR on the node.
func TestClosedBefore(t *testing.T) {
	claimed := func(node string, version int, agent string) crd.Block {
		b := fixtures.Block("10.0.0.0/30", "p", node, version)
		b.Closed.Agent = agent
		return b
	}
	closed, elsewhere := claimed("n", 1, "c"), claimed("m", 2, "d")
	inferred := closed
	inferred.Closed.Inferred = true
	for name, test := range map[string]struct {
		before []crd.Block // gone
		own    string      // the agent that has closed this block
		agent  string      // that runs
		want   string
	}{
		"no earlier one is closed":                {[]crd.Block{claimed("n", 1, "")}, "", "c", ""},
		"an earlier one is":                       {[]crd.Block{closed}, "", "c", "c"},
		"another node has had it in between":      {[]crd.Block{closed, elsewhere}, "", "c", "c"},
		"one of another node is":                  {[]crd.Block{elsewhere}, "", "d", ""},
		"the agent has restarted":                 {[]crd.Block{closed}, "", "e", ""},
		"no agent is known":                       {[]crd.Block{closed}, "", "", ""},
		"this one was closed by an earlier agent": {[]crd.Block{closed}, "b", "c", "c"},
		"this one is, too":                        {[]crd.Block{closed}, "c", "c", "c"},
		"an earlier one is inferred":              {[]crd.Block{inferred}, "", "c", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterOf(test.before...)
			for _, b := range test.before {
				c.Ledger.Remove(b)
			}
			c.Ledger.Upsert(claimed("n", 3, test.own))
			c.Defaults.CiliumPools = true
			c.Agents.Set(ReadAgent(fixtures.AgentPod("1", test.agent, true)), fixtures.Noon())
			if got := c.Snapshot("n", fixtures.Node(), fixtures.Noon()).Shares[0].State.Blocks[0].Closed.Agent; got != test.want {
				t.Errorf("closed by %q, want %q", got, test.want)
			}
		})
	}
}

// A node gets a CIDR that its agent is inferred to have closed if there is no other.
func TestClaimOfClosed(t *testing.T) {
	closed := fixtures.Block("10.0.0.0/30", "p", "n", 1)
	closed.Closed = expand.Closed{Agent: "c"}
	inferred := closed
	inferred.Closed.Inferred = true
	for name, test := range map[string]struct {
		before crd.Block
		pool   string
		want   string // empty: none
	}{
		"another one":        {closed, "10.0.0.0/29", "10.0.0.4/30"},
		"none":               {closed, "10.0.0.0/30", ""},
		"inferred, another":  {inferred, "10.0.0.0/29", "10.0.0.4/30"},
		"inferred, no other": {inferred, "10.0.0.0/30", "10.0.0.0/30"},
	} {
		t.Run(name, func(t *testing.T) {
			l := ReadyLedger()
			l.Upsert(test.before)
			l.Remove(test.before)
			cidr, _, err := l.Claim(ipalloc.IPv4, "n", "c", []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, test.pool))})
			if got := cidr.String(); err == nil && got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("got %s, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestLedgerWaitForCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ReadyLedger()
		b, other := fixtures.Block("10.0.0.0/30", "p", "a", 10), fixtures.Block("10.0.0.4/30", "p", "a", 20)
		first, cancel := context.WithCancel(t.Context())
		ended, done := make(chan error, 1), make(chan error, 1)
		go func() { ended <- l.WaitForCache(first, b.UID) }()
		go func() { done <- l.WaitForCache(t.Context(), b.UID) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that the context ended", err)
		}
		synctest.Wait()
		before := l.await(b.UID)
		l.Assume(b)
		l.Upsert(other) // a later one, as a relist may show them
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal("came back before the watch had shown the block")
		}
		if l.await(b.UID) != before {
			t.Error("another block wakes those who wait for this one")
		}
		if l.InCache(b.UID) || !l.InCache(other.UID) {
			t.Error("InCache does not report what the watch has delivered")
		}
		l.Upsert(b)
		if err := <-done; err != nil {
			t.Error(err)
		}
		l.Remove(b)
		if err := l.WaitForCache(t.Context(), b.UID); err != nil || l.InCache(b.UID) || len(l.waiters) > 0 {
			t.Errorf("waiting for what is gone: %v; in the cache %t; %d waits stay behind", err, l.InCache(b.UID), len(l.waiters))
		}
	})
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

// A block object that is gone, even by force, stays taken while CiliumNodes name its addresses, as of
// the last write even if the watch is late.
func TestLedgerBlockGoneAndNamed(t *testing.T) {
	const cidr = "10.0.0.0/30"
	block, at := fixtures.Block(cidr, "p", "n", 2), func(name, version string, podCIDRs ...string) func(*Ledger) {
		return func(l *Ledger) {
			l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode(name, version, podCIDRs...)))
		}
	}
	allocating := func(name, version string, pool ...string) func(*Ledger) { // allocates from its pool alone
		cn := fixtures.CiliumNode(name, version)
		cn.Spec.IPAM.Pool = fixtures.AllocationMap(pool...)
		return func(l *Ledger) { l.UpsertCiliumNode(ciliumnode.NewView(cn)) }
	}
	gone := func(l *Ledger) { l.Remove(block) }
	again := fixtures.Block(cidr, "p", "m", 4)
	deleted := func(name, version string, pool ...string) func(*Ledger) {
		cn := fixtures.CiliumNode(name, version)
		cn.Spec.IPAM.Pool = fixtures.AllocationMap(pool...)
		return func(l *Ledger) { l.RemoveCiliumNode(ciliumnode.NewView(cn)) }
	}
	forget := func(name string) func(*Ledger) { return func(l *Ledger) { l.ForgetCiliumNode(name) } }
	for name, test := range map[string]struct {
		news []func(*Ledger)
		free uint64
	}{
		"named by no CiliumNode":           {[]func(*Ledger){at("n", "5"), gone}, 1},
		"the watch shows an older version": {[]func(*Ledger){at("n", "8", cidr), gone, at("n", "7")}, 0},
		"the watch shows the write":        {[]func(*Ledger){at("n", "8", cidr), gone, at("n", "8", cidr)}, 0},
		"it is published no longer":        {[]func(*Ledger){at("n", "8", cidr), gone, at("n", "9")}, 1},
		"only in the pool":                 {[]func(*Ledger){allocating("n", "8", "10.0.0.1"), gone}, 0},
		"in the pool no longer":            {[]func(*Ledger){allocating("n", "8", "10.0.0.1"), gone, at("n", "9")}, 1},
		"an address mapped into IPv6":      {[]func(*Ledger){gone, allocating("n", "8", "::ffff:10.0.0.1", "x")}, 0},
		"recreated for another, and gone":  {[]func(*Ledger){allocating("n", "8", "10.0.0.1"), func(l *Ledger) { l.Upsert(again); l.Remove(again) }}, 0},
		"another block goes":               {[]func(*Ledger){at("n", "8", cidr), gone, func(l *Ledger) { l.Remove(fixtures.Block("10.0.1.0/30", "p", "n", 3)) }}, 0},
		"two name it":                      {[]func(*Ledger){at("n", "8", cidr), at("m", "8", cidr), gone, at("m", "9")}, 0},
		"the CiliumNode is gone":           {[]func(*Ledger){at("n", "8", cidr), gone, deleted("n", "9")}, 0},
		"and forgotten":                    {[]func(*Ledger){at("n", "8", cidr), gone, deleted("n", "9"), forget("n")}, 1},
		"forgotten before the block goes":  {[]func(*Ledger){allocating("n", "8", "10.0.0.1"), deleted("n", "9", "10.0.0.1"), forget("n"), gone}, 1},
		"another one is forgotten":         {[]func(*Ledger){at("n", "8", cidr), gone, forget("m")}, 0},
		"not forgotten, as it is there":    {[]func(*Ledger){at("n", "8", cidr), gone, deleted("n", "9"), at("n", "10", cidr), forget("n")}, 0},
		"deleted, and a response is late":  {[]func(*Ledger){at("n", "8", cidr), gone, deleted("n", "11"), at("n", "10"), forget("n")}, 1},
		"an earlier one is deleted late":   {[]func(*Ledger){gone, at("n", "10", cidr), deleted("n", "9"), forget("n")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := ReadyLedger(block, fixtures.Block("10.0.1.0/30", "p", "n", 3))
			for _, do := range test.news {
				do(l)
			}
			if got := l.Free(ipalloc.Cut{Ranges: fixtures.Prefixes(cidr), BlockBits: 30}); got != test.free {
				t.Errorf("%d are free, want %d", got, test.free)
			}
		})
	}
}

// The ledger forgets which CIDRs the API server refused once it remembers maxRefused of them: a
// policy may be gone since. Each claim and each block that is free again counts as a move.
func TestLedgerForgetsRefusals(t *testing.T) {
	l := ReadyLedger()
	pools := NewPools(fixtures.Defaults(), l)
	pools.Set(fixtures.PodIPPool("p", 1, "10.0.0.0/20"))
	claim := func() netip.Prefix {
		cidr, _, err := l.Claim(ipalloc.IPv4, "n", "", []*crd.Pool{pools.Get("p")})
		if err != nil {
			t.Fatal(err)
		}
		return cidr
	}
	first := claim()
	l.Refuse("n", first)
	for range maxRefused - 1 {
		cidr := claim()
		if cidr == first {
			t.Fatal("a refused CIDR is claimed while the pool has others")
		}
		l.Refuse("n", cidr)
	}
	last := claim()
	if last == first {
		t.Fatal("refusals are forgotten too early")
	}
	l.Refuse("n", last)
	if again := claim(); again != first {
		t.Errorf("refusals are remembered for ever: %s is claimed", again)
	}
	if got, want := l.Turnover()["p"], uint64(2*(maxRefused+1)+1); got != want {
		t.Errorf("%d blocks came or went, want %d", got, want)
	}
}

func TestHeldElsewhere(t *testing.T) {
	l := ReadyLedger(fixtures.Block("10.0.0.0/30", "p", "n", 1), fixtures.Block("10.0.0.8/30", "p", "m", 2))
	for named, want := range map[string][]netip.Prefix{
		"10.0.0.0/30": nil, "10.0.0.4/30": nil, "10.0.0.1/32": nil,
		"10.0.0.8/30": fixtures.Prefixes("10.0.0.8/30"), "10.0.0.9/32": fixtures.Prefixes("10.0.0.8/30"), "10.0.0.0/28": fixtures.Prefixes("10.0.0.8/30"),
	} {
		if diff := cmp.Diff(want, l.HeldElsewhere("n", fixtures.Prefixes(named)), fixtures.CompareNetip()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", named, diff)
		}
	}
}

// A claim under way is lost if another leader's block of the CIDR arrives.
func TestClaimLostToAnotherWriter(t *testing.T) {
	l := ReadyLedger()
	cidr, _, err := l.Claim(ipalloc.IPv4, "n", "", []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/30"))})
	if err != nil {
		t.Fatal(err)
	}
	l.Upsert(fixtures.Block(cidr.String(), "p", "m", 1))
	held := l.HeldIn(cidr)
	if len(held) != 1 || held[0].Owner.Node != "m" {
		t.Errorf("the ledger has %+v", held)
	}
}
