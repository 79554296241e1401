package world

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/hostscope"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
)

var (
	first  = netip.MustParsePrefix("10.0.0.0/29")
	second = netip.MustParsePrefix("10.0.0.8/29")
)

// blockIn returns a block of a node in a phase.
func blockIn(cidr netip.Prefix, node string, phase v1alpha1.BlockPhase) *v1alpha1.PodIPBlock {
	b := crd.NewBlock(cidr, "main", node, "")
	b.Finalizers = nil
	if phase == v1alpha1.PhaseDraining {
		b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.BlockDraining, Status: metav1.ConditionTrue}}
	}
	return b
}

// put creates a block and writes its status.
func put(w *World, b *v1alpha1.PodIPBlock) *v1alpha1.PodIPBlock {
	w.must(w.api.Create(b))
	now := w.api.Get(KindBlock, b.Name).DeepCopyObject().(*v1alpha1.PodIPBlock)
	now.Status = b.Status
	w.must(w.api.Update(now, true))
	return now
}

// texts returns the rules broken so far.
func texts(w *World) string {
	out := ""
	for _, v := range w.Violations {
		out += fmt.Sprintf("%d: %s\n", v.Rule, v.Text)
	}
	return out
}

// TestHasDrained checks that a block in service may be parked only if it has drained on the
// same node before.
func TestHasDrained(t *testing.T) {
	tests := map[string]struct {
		before []*v1alpha1.PodIPBlock // made and deleted, in turn
		want   bool
	}{
		"it never drained":              {},
		"it was there, in service":      {before: []*v1alpha1.PodIPBlock{blockIn(first, "n1", v1alpha1.PhaseInService)}},
		"it drained":                    {before: []*v1alpha1.PodIPBlock{blockIn(first, "n1", v1alpha1.PhaseDraining)}, want: true},
		"it drained on another node":    {before: []*v1alpha1.PodIPBlock{blockIn(first, "n2", v1alpha1.PhaseDraining)}},
		"another block of the node did": {before: []*v1alpha1.PodIPBlock{blockIn(second, "n1", v1alpha1.PhaseDraining)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, nil)
			for _, b := range test.before {
				put(w, b)
				w.mustNot(w.api.Delete(KindBlock, b.Name, nil, nil))
			}
			now := blockIn(first, "n1", v1alpha1.PhaseInService)
			w.must(w.api.Create(now))
			if got := w.modeRules.hasDrained(now); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// TestIsPartOfListed checks that a block may stay unlisted only if an overlapping block of its
// node is listed.
func TestIsPartOfListed(t *testing.T) {
	around := netip.MustParsePrefix("10.0.0.0/28")
	tests := map[string]struct {
		holder string // of the block around it
		listed netip.Prefix
		want   bool
	}{
		"the one around it is listed":   {"n1", around, true},
		"that is another node's":        {"n2", around, false},
		"that is no block":              {"", around, false},
		"it is listed itself":           {"n1", first, false},
		"one beside it is listed":       {"n1", second, false},
		"one of another range is":       {"n1", netip.MustParsePrefix("10.0.0.32/28"), false},
		"nothing is listed that is one": {"", netip.Prefix{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, nil)
			b := blockIn(first, "n1", "")
			w.must(w.api.Create(b))
			if test.holder != "" {
				w.must(w.api.Create(blockIn(around, test.holder, "")))
			}
			var entries []listed
			if test.listed.IsValid() {
				entries = append(entries, listed{pool: "default", cidr: test.listed})
			}
			if got := w.modeRules.isPartOfListed(b, entries); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// TestCheckRequestedRest checks that an agent may have less than it requests only in dual stack
// with parking, and if one family has no free block.
func TestCheckRequestedRest(t *testing.T) {
	both := []agent.Family{agent.IPv4, agent.IPv6}
	tests := map[string]struct {
		families    []agent.Family
		parks, full bool // IPv6 is
		has         bool // it has what it requests
		found       bool
	}{
		"it has it":                          {families: both, parks: true, has: true},
		"it lacks it":                        {families: both, parks: true, found: true},
		"the other family has no block left": {families: both, parks: true, full: true},
		"the same, without parking":          {families: both, full: true, found: true},
		"the same, in IPv4 alone":            {families: both[:1], parks: true, full: true, found: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) {
				c.Families = test.families
				c.Settings.Mode, c.Settings.ParkBlocks = ciliumnode.MultiPool, test.parks
				c.Pools[0].Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 125, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/125"}}}
			})
			if test.full {
				w.must(w.api.Create(blockIn(netip.MustParsePrefix("fd00::/125"), "n2", "")))
			}
			cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			if test.has {
				w.must(w.api.Create(blockIn(first, "n1", "")))
				cn.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: crd.DefaultCiliumPool, CIDRs: []iputil.Prefix{iputil.PrefixFrom(first)}}}
			}
			w.must(w.api.Create(cn))
			w.settled.checkRequestedRest("at rest", w.machine("n1"), ipamtypes.IPAMPoolRequest{Pool: crd.DefaultCiliumPool, Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 4}}, ipalloc.IPv4)
			if found := len(w.Violations) > 0; found != test.found {
				t.Errorf("found %q, want %t", texts(w), test.found)
			}
		})
	}
}

// TestRestartClosed checks that an agent restarts only if it has closed a CIDR for which its
// node has a block, in service as far as anybody knows, while one of its pods has no address.
func TestRestartClosed(t *testing.T) {
	tests := map[string]struct {
		keeps  bool // the agent sees the CIDR all along
		holder string
		known  bool // that the agent has closed it
		podHas bool
		want   bool
	}{
		"it has forgotten that":            {holder: "n1", want: true},
		"the agent has closed nothing":     {holder: "n1", keeps: true},
		"it knows":                         {holder: "n1", known: true},
		"the block is another node's":      {holder: "n2"},
		"there is no block any more":       {},
		"no pod is without addresses here": {holder: "n1", podHas: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) { c.Settings.Mode = ciliumnode.MultiPool })
			m := w.machine("n1")
			m.phase, m.whole = serving, closed(t, test.keeps)
			if test.holder != "" {
				b := blockIn(first, test.holder, v1alpha1.PhaseInService)
				if test.known {
					b.Status.Closed = &v1alpha1.BlockClosed{Container: "one"}
				}
				put(w, b)
			}
			m.kubelet.newPod("p1", "")
			if test.podHas {
				m.endpoints["p1"] = &endpoint{pod: m.kubelet.podObject("p1"), v4: second.Addr().Next()}
			}
			if got := w.quiescence.restartClosed(); got != test.want || (m.phase == down) != test.want {
				t.Errorf("restarts %t (%v), want %t", got, m.phase, test.want)
			}
		})
	}
}

// TestClosedTo checks that a CIDR without a block is of no use to a node if its agent has closed
// it, or if its last block says that this run of the agent has.
func TestClosedTo(t *testing.T) {
	tests := map[string]struct {
		keeps  bool   // the agent sees the CIDR all along
		holder string // of the last block
		says   string // the container that has closed it, as the last block has it
		stays  bool   // that block
		want   int
	}{
		"the agent has closed it":         {holder: "n1", want: 1},
		"its block says so":               {keeps: true, holder: "n1", says: "containerd://n1-1", want: 1},
		"both":                            {holder: "n1", says: "containerd://n1-1", want: 1},
		"neither":                         {keeps: true, holder: "n1"},
		"the block is still there":        {holder: "n1", says: "containerd://n1-1", stays: true},
		"an earlier run had closed it":    {keeps: true, holder: "n1", says: "containerd://n1-0"},
		"the block was of another node's": {keeps: true, holder: "n2", says: "containerd://n1-1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) { c.Settings.Mode = ciliumnode.MultiPool })
			m := w.machine("n1")
			m.whole, m.kubelet.pod.run = closed(t, test.keeps), 1
			b := blockIn(first, test.holder, v1alpha1.PhaseInService)
			if test.says != "" {
				b.Status.Closed = &v1alpha1.BlockClosed{Container: test.says}
			}
			put(w, b)
			if !test.stays {
				w.mustNot(w.api.Delete(KindBlock, b.Name, nil, nil))
			}
			if got := w.settled.closedTo(m, ipalloc.IPv4); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}

// TestCheckServed checks that a CIDR may be listed for another Cilium pool than its PodIPPool
// serves only if that is the one it served as far as the operator knew.
func TestCheckServed(t *testing.T) {
	for name, test := range map[string]struct {
		listed, knew string
		found        bool
	}{
		"the one it serves":             {listed: crd.DefaultCiliumPool, knew: crd.DefaultCiliumPool},
		"another one":                   {listed: "blue", knew: crd.DefaultCiliumPool, found: true},
		"the one that it had served":    {listed: "blue", knew: "blue"},
		"the operator knew no such":     {listed: "blue", found: true},
		"the operator knew a third":     {listed: "blue", knew: "green", found: true},
		"what the operator cannot know": {listed: crd.DefaultCiliumPool, knew: "blue"},
	} {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) { c.Settings.Mode = ciliumnode.MultiPool })
			put(w, blockIn(first, "n1", v1alpha1.PhaseInService))
			w.rules.writer = w.operators[0]
			w.rules.writer.current = &flight{name: "n1", serves: map[string]string{"main": test.knew}}
			w.modeRules.checkServed("n1", listed{test.listed, first})
			if found := len(w.Violations) > 0; found != test.found {
				t.Errorf("found %q, want %t", texts(w), test.found)
			}
		})
	}
}

// closed returns an agent that saw its first CIDR removed from the list while in use and then
// listed again, or one that saw it listed all the time.
func closed(t *testing.T, keeps bool) *multipool.Pools {
	t.Helper()
	p := &multipool.Pools{}
	p.Sees(crd.DefaultCiliumPool, []netip.Prefix{first})
	p.Restored()
	if _, err := p.Allocate(crd.DefaultCiliumPool, ipalloc.IPv4, "default/other"); err != nil {
		t.Fatal(err)
	}
	if !keeps {
		p.Sees(crd.DefaultCiliumPool, nil)
		p.Sees(crd.DefaultCiliumPool, []netip.Prefix{first})
	}
	return p
}

// TestIsOfAnotherPool checks that only a pod created in crd mode may be lost on its way back to
// multi-pool mode, and only with an address of a CIDR that came with another Cilium pool.
func TestIsOfAnotherPool(t *testing.T) {
	tests := map[string]struct {
		pool   string // of the pod
		listed string // the pool of its CIDR
		addr   netip.Addr
		want   bool
	}{
		"created in crd mode":                 {crd.DefaultCiliumPool, "blue", first.Addr().Next(), true},
		"created in multi-pool mode":          {"blue", "blue", first.Addr().Next(), false},
		"its CIDR is listed for its own pool": {crd.DefaultCiliumPool, crd.DefaultCiliumPool, first.Addr().Next(), false},
		"its CIDR is listed for a third pool": {crd.DefaultCiliumPool, "green", first.Addr().Next(), false},
		"its CIDR came with the default pool": {crd.DefaultCiliumPool, "blue", second.Addr().Next(), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) {
				c.Move = &Move{From: adopt.MultiPool, Given: [][]netip.Prefix{{first, second}, nil}, Pools: map[netip.Prefix]string{first: "blue"}}
			})
			m := w.machine("n1")
			m.boot()
			m.seen = m.seen.DeepCopy()
			m.seen.Spec.IPAM.Pools.Allocated = allocatedOf([]listed{{test.listed, first}, {test.listed, second}})
			if got := m.isOfAnotherPool(&endpoint{pools: [2]string{test.pool, test.pool}}, test.addr); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// TestLostNode checks that an agent that runs on without its Node may be given another podCIDR
// only if it has not seen the new Node, and its block is gone or must go.
func TestLostNode(t *testing.T) {
	tests := map[string]struct {
		sawNode bool
		holder  string // of the block that it runs with
		drains  bool
		found   bool
	}{
		"its block has gone":                   {},
		"its block is another node's":          {holder: "n2"},
		"its block drains with its range":      {holder: "n1", drains: true},
		"its block stays":                      {holder: "n1", found: true},
		"it has gone under the same Node":      {sawNode: true, found: true},
		"its block drains under the same Node": {sawNode: true, holder: "n1", drains: true, found: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) {
				c.Settings.Mode = ciliumnode.Kubernetes
				c.Pools[0].Spec.IPv4.CIDRs[0] = v1alpha1.PoolCIDR{CIDR: "10.0.0.0/29"}
				if test.drains {
					c.Pools[0].Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
				}
				c.Pools[0].Spec.IPv4.CIDRs = append(c.Pools[0].Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.0.0.8/29"})
			})
			m := w.machine("n1")
			node := w.api.Get(KindNode, "n1").(*corev1.Node)
			m.phase, m.old, m.node = serving, &hostscope.Agent{CIDRs: []netip.Prefix{first}}, types.UID("an older one")
			if test.sawNode {
				m.node = node.UID
			}
			e := &endpoint{pod: &corev1.Pod{}, v4: first.Addr().Next()}
			m.endpoints["p1"] = e
			if test.holder != "" {
				w.must(w.api.Create(blockIn(first, test.holder, "")))
			}
			w.must(w.api.Create(blockIn(second, "n1", "")))
			w.modeRules.checkPodCIDR(node, m, second)
			if found := len(w.Violations) > 0; found != test.found || m.evicted == test.found || e.forfeited == test.found {
				t.Errorf("found %q, want %t; evicted %t, forfeited %t", texts(w), test.found, m.evicted, e.forfeited)
			}
		})
	}
}

// TestIsLeftWith checks that an agent starts afresh after its Node only if it has the block that
// is released, or may see it listed yet.
func TestIsLeftWith(t *testing.T) {
	w := small(t, func(c *Config) { c.Settings.Mode = ciliumnode.MultiPool })
	m := w.machine("n1")
	m.boot()
	holds := func(when string, want bool) {
		t.Helper()
		if got := m.isLeftWith(first); got != want {
			t.Errorf("%s: got %t, want %t", when, got, want)
		}
	}
	holds("with nothing listed", false)
	for _, cidr := range []netip.Prefix{first, second} {
		cn := w.api.Get(KindCiliumNode, "n1").DeepCopyObject().(*ciliumv2.CiliumNode)
		cn.Spec.IPAM.Pools.Allocated = allocatedOf([]listed{{crd.DefaultCiliumPool, cidr}})
		w.must(w.api.Update(cn, false))
		holds("before it has seen its list", true)
		m.observe()
		holds("once it has", cidr == first)
	}
}

// TestBesides checks that the judge ignores the claim and the deletion of a block that overlaps
// another, and nothing else.
func TestBesides(t *testing.T) {
	w := small(t, nil)
	inside, alone := blockIn(first, "n1", ""), blockIn(second, "n1", "")
	around := blockIn(netip.MustParsePrefix("10.0.0.0/30"), "n2", "")
	w.must(w.api.Create(around))
	for name, test := range map[string]struct {
		v    Version
		want bool
	}{
		"it comes":                        {Version{Kind: KindBlock, Key: inside.Name, New: inside}, true},
		"it goes":                         {Version{Kind: KindBlock, Key: inside.Name, Old: inside}, true},
		"it changes":                      {Version{Kind: KindBlock, Key: inside.Name, Old: inside, New: inside}, false},
		"one comes that overlaps none":    {Version{Kind: KindBlock, Key: alone.Name, New: alone}, false},
		"the same one comes":              {Version{Kind: KindBlock, Key: around.Name, New: around}, false},
		"what is no block comes":          {Version{Kind: KindPool, Key: inside.Name, New: &v1alpha1.PodIPPool{}}, false},
		"a CiliumNode of that name comes": {Version{Kind: KindCiliumNode, Key: inside.Name, New: &ciliumv2.CiliumNode{}}, false},
	} {
		if got := w.rules.besides(test.v); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

// TestTakeIn checks that a block that was torn away belongs to its node until its CiliumNode no
// longer lists it. Then, and if it was never listed, the judge knows it as gone.
func TestTakeIn(t *testing.T) {
	tests := map[string]struct {
		listed, unlisted bool
		claimer          string
		found            bool
	}{
		"its node claims it again":                {listed: true, claimer: "n1"},
		"another node claims it":                  {listed: true, claimer: "n2", found: true},
		"another does, once it is listed no more": {listed: true, unlisted: true, claimer: "n2"},
		"another does, as it never was":           {claimer: "n2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, nil)
			for _, m := range w.machines {
				m.discover()
			}
			w.must(w.api.Create(blockIn(first, "n1", "")))
			list := func(cidrs ...iputil.Prefix) {
				cn := w.api.Get(KindCiliumNode, "n1").DeepCopyObject().(*ciliumv2.CiliumNode)
				cn.Spec.IPAM.PodCIDRs = cidrs
				cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
				for _, cidr := range cidrs {
					for _, addr := range multipool.Inner(cidr.Prefix) {
						cn.Spec.IPAM.Pool[addr.String()] = ipamtypes.AllocationIP{}
					}
				}
				w.must(w.api.Update(cn, false))
			}
			if test.listed {
				list(iputil.PrefixFrom(first))
			}
			w.mustNot(w.api.Delete(KindBlock, crd.BlockName(first), nil, nil))
			if torn := len(w.rules.torn) > 0; torn != test.listed {
				t.Fatalf("torn away: %v", w.rules.torn)
			}
			if test.unlisted {
				if list(); len(w.rules.torn) > 0 {
					t.Fatalf("still torn away: %v", w.rules.torn)
				}
			}
			o := w.operators[0]
			o.start(0)
			o.begun, w.rules.writer, o.current = true, o, &flight{name: test.claimer, pending: &call{}}
			w.must(w.api.Create(blockIn(first, test.claimer, "")))
			rule1 := slices.ContainsFunc(w.Violations, func(v Violation) bool { return v.Rule == 1 })
			if rule1 != test.found {
				t.Errorf("found %q, want %t", texts(w), test.found)
			}
		})
	}
}

// TestReturnsUnseen checks that a listed block may be released only in multi-pool mode, by a
// reconcile of its own node that found no CiliumNode, and if its Node was gone.
func TestReturnsUnseen(t *testing.T) {
	type given struct {
		mode  ciliumnode.Mode
		why   string
		f     flight
		whose string
	}
	right := given{ciliumnode.MultiPool, v1alpha1.ReasonNodeGone, flight{name: "n1", foundNone: true}, "n1"}
	for name, test := range map[string]struct {
		change func(*given)
		want   bool
	}{
		"it was gone":               {func(*given) {}, true},
		"in crd mode":               {func(g *given) { g.mode = ciliumnode.CRD }, false},
		"another reason":            {func(g *given) { g.why = "Returned" }, false},
		"the CiliumNode was there":  {func(g *given) { g.f.foundNone = false }, false},
		"by a reconcile of another": {func(g *given) { g.f.name = "n2" }, false},
		"a block of another node's": {func(g *given) { g.whose = "n2" }, false},
		"nothing was read yet":      {func(g *given) { g.f = flight{} }, false},
	} {
		g := right
		test.change(&g)
		w := small(t, func(c *Config) { c.Settings.Mode = g.mode })
		w.operators[0].current, w.rules.writer = &g.f, w.operators[0]
		if got := w.rules.returnsUnseen(blockIn(first, g.whose, ""), g.why); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}
