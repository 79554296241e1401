package world

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/hostscope"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// small is a new world of one operator and two nodes.
func small(t *testing.T, change func(*Config)) *World {
	t.Helper()
	c := Config{
		Nodes: 2, PodsPerNode: 2, Operators: 1, UpdateRate: 15 * time.Second, Settings: Settings(), Upgraded: Settings(),
		Pools: []*v1alpha1.PodIPPool{Pool("main", 0, 29, "10.0.0.0/26")},
	}
	if change != nil {
		change(&c)
	}
	w := New(c)
	t.Cleanup(w.Close)
	return w
}

// TestExcuses checks that an address that a user removed from a node is excused on that node
// only, until it is back and the node's agent has seen it.
func TestExcuses(t *testing.T) {
	w := small(t, nil)
	n1, n2 := w.machine("n1"), w.machine("n2")
	n1.read = 5
	tests := map[string]struct {
		e    excuse
		on   *machine
		want bool
	}{
		"gone":                        {excuse{node: "n1"}, n1, true},
		"gone from another node":      {excuse{node: "n2"}, n1, false},
		"none":                        {excuse{}, n2, false},
		"back, and not seen":          {excuse{node: "n1", back: 6}, n1, true},
		"back, and seen by its agent": {excuse{node: "n1", back: 5}, n1, false},
	}
	for name, test := range tests {
		if got := test.e.holds(test.on); got != test.want {
			t.Errorf("%s: excused %t, want %t", name, got, test.want)
		}
	}
}

// TestMarkedThoughNotReported checks that the addresses of an agent that reports nothing of a
// family are not kept only if it does not run the family.
func TestMarkedThoughNotReported(t *testing.T) {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	tests := map[string]struct {
		families []agent.Family
		addr     netip.Addr
		settled  bool
		broken   string
	}{
		"a family not run":                 {[]agent.Family{agent.IPv4}, v6, true, ""},
		"the one that is run":              {[]agent.Family{agent.IPv4}, v4, true, "its agent reports nothing"},
		"both are run":                     {[]agent.Family{agent.IPv4, agent.IPv6}, v6, true, "its agent reports nothing"},
		"not run, by an agent that starts": {[]agent.Family{agent.IPv4}, v6, false, "its agent had just started"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) { c.Families = test.families })
			w.operators[0].start(0)
			w.rules.writer = w.operators[0]
			w.rules.checkGuards(&flight{name: "n1", settled: test.settled}, cn, test.addr)
			var got string
			for _, v := range w.Violations {
				got += v.Text
			}
			if (got == "") != (test.broken == "") || !strings.Contains(got, test.broken) {
				t.Errorf("got %q, want %q", got, test.broken)
			}
		})
	}
}

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

// texts returns the rules broken so far.
func texts(w *World) string {
	out := ""
	for _, v := range w.Violations {
		out += fmt.Sprintf("%d: %s\n", v.Rule, v.Text)
	}
	return out
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
		cn.Spec.IPAM.Pools.Allocated = allocatedOf([]whole.Entry{{Pool: crd.DefaultCiliumPool, CIDR: cidr}})
		w.must(w.api.Update(cn, false))
		holds("before it has seen its list", true)
		m.observe()
		holds("once it has", cidr == first)
	}
}

// TestBesides checks that the judge ignores the claim and the deletion of a block that overlaps
// another, and no other change.
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
		b := blockIn(first, g.whose, "")
		b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.BlockCoolingDown, Status: metav1.ConditionTrue, Reason: g.why}}
		if got := w.rules.returnsUnseen(Version{Kind: KindBlock, Old: b}); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

// TestFirstBlocksAreJudged checks that a first block of a pool that no longer rules its node is
// a violation until the operator has replaced it, and that a taint delays the claim.
func TestFirstBlocksAreJudged(t *testing.T) {
	taint := crd.DefaultStartupTaints()[0]
	w := small(t, func(c *Config) {
		c.Nodes, c.Settings.StartupTaints, c.Labels = 1, []string{taint}, &Labels{Zones: []string{"east"}, Taint: taint}
		east := Pool("east", 5, 29, "10.0.9.0/28")
		east.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{ZoneLabel: "east"}}
		c.Pools = append(c.Pools, east)
	})
	m := w.machines[0]
	m.held = true
	w.Do(Action{Start, "op1", ""})
	w.Do(Action{Lead, "op1", ""})
	w.quiescence.goOn()
	if blocks := w.api.Keys(KindBlock); len(blocks) > 0 {
		t.Fatalf("under the taint the node has blocks %v", blocks)
	}
	w.users.untaint(m.name)
	if !w.Quiesce(1000) || len(w.api.Keys(KindBlock)) != 1 {
		t.Fatalf("blocks %v, violations %v", w.api.Keys(KindBlock), w.Violations)
	}
	w.Do(Action{NodeLabel, m.name, "zone=east"})
	w.rules.checkFirst(m)
	if len(w.Violations) != 1 || !strings.Contains(w.Violations[0].Text, "keeps its first blocks [10.0.0.0-29]") {
		t.Fatalf("the block of the other pool is not found: %v", w.Violations)
	}
	w.Violations = nil
	if !w.Quiesce(1000) {
		t.Fatalf("no rest: %v", w.Violations)
	}
	w.rules.checkFirst(m)
	if len(w.Violations) > 0 {
		t.Errorf("after the operator replaced it: %v", w.Violations)
	}
}
