package state

import (
	"net/netip"
	"slices"
	"strconv"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// An agent may have closed blocks unseen if it ran before this process, or if its CiliumNode was
// deleted and created again.
func TestMayHaveClosed(t *testing.T) {
	starts, runs := ReadAgent(fixtures.AgentPod("1", "", false)), ReadAgent(fixtures.AgentPod("1", "c", true))
	for name, test := range map[string]struct {
		seen  []AgentPod
		uids  []types.UID
		parks bool
		want  bool
	}{
		"it ran before":                 {[]AgentPod{runs, runs}, []types.UID{"u"}, true, true},
		"where no block is parked":      {[]AgentPod{runs}, []types.UID{"u", "v"}, false, false},
		"it has started since":          {[]AgentPod{starts, runs}, []types.UID{"u", "u"}, true, false},
		"it has restarted since":        {[]AgentPod{runs, ReadAgent(fixtures.AgentPod("1", "d", true))}, []types.UID{"u"}, true, false},
		"its CiliumNode is another one": {[]AgentPod{starts, runs}, []types.UID{"u", "v", "v"}, true, true},
		"no agent":                      {nil, []types.UID{"u"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterOf(fixtures.Block("10.0.0.0/30", "p", "n", 1))
			c.ParkBlocks, c.Defaults.CiliumPools = test.parks, true
			for _, pod := range test.seen {
				c.Agents.Set(pod, fixtures.Noon())
			}
			for i, uid := range test.uids {
				c.Ledger.UpsertCiliumNode(&ciliumnode.View{Name: "n", UID: uid, ResourceVersion: strconv.Itoa(i + 1), BlockAssignment: &ciliumnode.BlockAssignment{}})
			}
			if got := c.Snapshot("n", fixtures.Node(), fixtures.Noon()).Shares[0].State.BlockAssignment.MayHaveClosed; got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
			checkTwins(t, c, fixtures.Node())
		})
	}
}

// Blocks are compacted if the flag says so, but not where Cilium's BGP control plane announces them.
func TestMayCompact(t *testing.T) {
	for name, test := range map[string]struct {
		compacts, known bool
		bgp             string
		want            bool
	}{
		"without BGP":            {true, true, "false", true},
		"without the setting":    {true, true, "", true},
		"with BGP":               {true, true, "true", false},
		"configuration not read": {true, false, "", false},
		"without the flag":       {false, true, "false", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterOf(fixtures.Block("10.0.0.0/30", "p", "n", 1))
			c.ParkBlocks, c.CompactBlocks, c.Defaults.CiliumPools, c.AnyMode = true, test.compacts, true, true
			c.Cilium = &ciliumconfig.Latest{}
			c.Cilium.Set(&ciliumconfig.Config{Known: test.known, Data: map[string]string{"enable-bgp-control-plane": test.bgp}})
			c.Ledger.UpsertCiliumNode(&ciliumnode.View{Name: "n", BlockAssignment: &ciliumnode.BlockAssignment{}})
			if got := c.Snapshot("n", fixtures.Node(), fixtures.Noon()).Shares[0].State.BlockAssignment.MayCompact; got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
			checkTwins(t, c, fixtures.Node())
		})
	}
}

// The ledger remembers that a CiliumNode was restored until it is forgotten, and does not
// confuse it with another CiliumNode of the same name.
func TestLedgerForgetsRestored(t *testing.T) {
	l := NewLedger()
	for i, step := range []struct {
		uid  types.UID
		mark types.UID
		want bool
	}{{"u", "v", false}, {"u", "u", true}, {"u", "", true}, {"v", "", false}} {
		l.UpsertCiliumNode(&ciliumnode.View{Name: "n", UID: step.uid, ResourceVersion: strconv.Itoa(i + 1), Addresses: &ciliumnode.Addresses{}})
		if l.MarkRestored("n", step.mark); l.Facts("n").restored != step.want {
			t.Errorf("step %d: restored: %t", i, !step.want)
		}
	}
	l.MarkRestored("n", "v")
	l.RemoveCiliumNode(&ciliumnode.View{Name: "n", UID: "v", ResourceVersion: "9"})
	l.ForgetCiliumNode("n")
	l.UpsertCiliumNode(&ciliumnode.View{Name: "n", UID: "v", Addresses: &ciliumnode.Addresses{}})
	if l.Facts("n").restored {
		t.Error("it is remembered after it was forgotten")
	}
}

// A list shows only the deletion of objects older than the list.
func TestMissingCiliumNodes(t *testing.T) {
	l := ReadyLedger()
	l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "10")))
	for version, want := range map[string]int{"9": 0, "10": 1, "11": 1} {
		missing := l.MissingCiliumNodes(nil, version)
		if len(missing) != want {
			t.Errorf("%d are missing from a list of version %s, want %d", len(missing), version, want)
		}
		if want > 0 && missing[0].ResourceVersion != version {
			t.Errorf("it is gone as of version %s, want %s", missing[0].ResourceVersion, version)
		}
	}
}

// CIDRs that a CiliumNode names outside its node's blocks are reported as taken, and as freed once
// they are no longer named. Its own blocks are not reported, as their claims were reported before.
func TestChangedNamesWhatIsForeign(t *testing.T) {
	l := NewLedger()
	var freed, taken []netip.Prefix
	l.Changed = func(f, t, _ []netip.Prefix, _ []string) { freed, taken = append(freed, f...), append(taken, t...) }
	l.Upsert(fixtures.Block("10.0.0.0/30", "p", "n", 1))
	freed, taken = nil, nil
	steps := []struct {
		name         string
		podCIDRs     []string
		taken, freed []netip.Prefix
	}{
		{"its block is published", []string{"10.0.0.0/30"}, nil, nil},
		{"another CIDR beside it", []string{"10.0.0.0/30", "10.0.0.8/30"}, fixtures.Prefixes("10.0.0.8/30"), nil},
		{"the other alone", []string{"10.0.0.8/30"}, nil, nil},
		{"none", nil, nil, fixtures.Prefixes("10.0.0.8/30")},
	}
	for i, step := range steps {
		l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", strconv.Itoa(i+1), step.podCIDRs...)))
		if !slices.Equal(taken, step.taken) || !slices.Equal(freed, step.freed) {
			t.Errorf("%s: taken %v, freed %v; want %v, %v", step.name, taken, freed, step.taken, step.freed)
		}
		freed, taken = nil, nil
	}
	l.Remove(fixtures.Block("10.0.0.0/30", "p", "n", 1))
	if want := fixtures.Prefixes("10.0.0.0/30"); !slices.Equal(freed, want) {
		t.Errorf("its block is gone: freed %v; want %v", freed, want)
	}
}

// The addresses of a pool in use follow agents' reports and blocks, and each change is reported.
func TestUsedFollowsReports(t *testing.T) {
	l, version := ReadyLedger(), 0
	var changed []string
	l.Changed = func(_, _, _ []netip.Prefix, used []string) { changed = append(changed, used...) }
	reports := func(mode ciliumnode.Mode, addrs ...string) func() {
		return func() {
			version++
			cn := fixtures.CiliumNode("n", strconv.Itoa(version))
			cn.Status.IPAM.Used = fixtures.AllocationMap(addrs...)
			l.UpsertCiliumNode(mode.View(cn))
		}
	}
	block := func(cidr, pool string) func() {
		return func() { version++; l.Upsert(fixtures.Block(cidr, pool, "n", version)) }
	}
	for _, step := range []struct {
		name    string
		do      func()
		p, q    [2]int64
		changed []string
	}{
		{name: "no block yet", do: reports(ciliumnode.CRD, "10.0.0.1", "10.0.0.2", "10.0.0.5", "fd00::1")},
		{"a block", block("10.0.0.0/30", "p"), [2]int64{2, 0}, [2]int64{}, []string{"p"}},
		{"of IPv6", block("fd00::/126", "p"), [2]int64{2, 1}, [2]int64{}, []string{"p"}},
		{"of another pool", block("10.0.0.4/30", "q"), [2]int64{2, 1}, [2]int64{1, 0}, []string{"q"}},
		{"no news", reports(ciliumnode.CRD, "10.0.0.2", "10.0.0.3", "10.0.0.5", "fd00::1"), [2]int64{2, 1}, [2]int64{1, 0}, nil},
		{"more of one, less of the other", reports(ciliumnode.CRD, "10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"), [2]int64{3, 1}, [2]int64{}, []string{"p", "q"}},
		{"its block moves to another pool", block("10.0.0.0/30", "q"), [2]int64{0, 1}, [2]int64{3, 0}, []string{"p", "q"}},
		{"the CiliumNode is deleted, and its pods run on", func() { version++; l.RemoveCiliumNode(l.CiliumNode("n").At(strconv.Itoa(version))) }, [2]int64{0, 1}, [2]int64{3, 0}, nil},
		{"its last state is forgotten", func() { l.ForgetCiliumNode("n") }, [2]int64{}, [2]int64{}, []string{"p", "q"}},
		{"agents that are assigned blocks do not report", reports(ciliumnode.MultiPool, "10.0.0.1"), [2]int64{}, [2]int64{}, nil},
	} {
		changed = nil
		step.do()
		slices.Sort(changed)
		if p, q := l.Used("p"), l.Used("q"); p != step.p || q != step.q || !slices.Equal(changed, step.changed) {
			t.Errorf("%s: p %v, q %v, changed %v; want %v, %v, %v", step.name, p, q, changed, step.p, step.q, step.changed)
		}
	}
	if len(l.blocks.used) > 0 {
		t.Errorf("left is %v", l.blocks.used)
	}
}

// One CiliumNode cannot take a pool from all nodes: the larger the CIDR that it lists, the more
// it takes to withhold it.
func TestWithheldByListedCIDRs(t *testing.T) {
	for name, tc := range map[string]struct {
		lists string
		used  []string
		own   string // the agent's address
		other string // block of another node
		want  uint64 // blocks that are withheld
	}{
		"a block's size":                 {lists: "10.1.0.8/30", want: 1},
		"less than a block":              {lists: "10.1.0.9/32", want: 1},
		"a /20":                          {lists: "10.1.0.0/20", want: 1024},
		"a /20, of an agent in crd mode": {lists: "10.1.0.0/20", used: []string{"10.1.0.1"}, want: 1024},
		"a /20, of such an agent, with a block of another node":              {lists: "10.1.0.0/20", used: []string{"10.1.0.1"}, other: "10.1.0.4/30", want: 1},
		"a /20, of one that has left crd mode, with a block of another node": {lists: "10.1.0.0/20", used: []string{"10.9.0.1"}, own: "10.1.0.1", other: "10.1.0.4/30", want: 1023},
		"a /16, of one that has left crd mode":                               {lists: "10.1.0.0/16", used: []string{"10.9.0.1"}, own: "10.1.0.1", want: 1 << 14},
		"a /16, of an agent in crd mode with an address of its own there":    {lists: "10.1.0.0/16", used: []string{"10.1.0.1"}, own: "10.1.0.1", want: 1},
		"inside a block of another node":                                     {lists: "10.1.0.4/31", used: []string{"10.1.0.9"}, other: "10.1.0.4/30", want: 1},
		"a /20 with a block of another node":                                 {lists: "10.1.0.0/20", other: "10.1.0.4/30", want: 1023},
		"a /16":                                                              {lists: "10.1.0.0/16", want: 1 << 14},
		"a /16, of an agent in crd mode":                                     {lists: "10.1.0.0/16", used: []string{"10.1.0.1"}, want: 1},
		"a /16 with a block of another node":                                 {lists: "10.1.0.0/16", other: "10.1.0.4/30"},
		"a /15":                                                              {lists: "10.0.0.0/15"},
		"a /0":                                                               {lists: "10.1.0.0/0"},
		"a /0, with addresses in use":                                        {lists: "10.1.0.0/0", used: []string{"10.1.0.1", "10.1.0.2", "10.1.0.9"}, want: 2},
		"beside the pool":                                                    {lists: "10.2.0.0/24"},
		"host bits, and larger than the pool's /16":                          {lists: "10.1.7.7/12"},
	} {
		t.Run(name, func(t *testing.T) {
			cn := fixtures.CiliumNode("n", "1", tc.lists)
			cn.Status.IPAM.Used = fixtures.AllocationMap(tc.used...)
			cn.Spec.HealthAddressing.IPv4 = tc.own
			cut := ipalloc.Cut{Ranges: fixtures.Prefixes("10.1.0.0/17", "10.1.128.0/17"), BlockBits: 30}
			for order, blocksFirst := range map[string]bool{"blocks first": true, "CiliumNode first": false} {
				l, held := NewLedger(), uint64(0)
				if !blocksFirst {
					l.UpsertCiliumNode(ciliumnode.NewView(cn))
				}
				if tc.other != "" {
					l.Upsert(fixtures.Block(tc.other, "p", "other", 1))
					held = 1
				}
				if blocksFirst {
					l.UpsertCiliumNode(ciliumnode.NewView(cn))
				}
				l.SetReady()
				if free := l.Free(cut); free != 1<<14-tc.want-held {
					t.Errorf("%s: %d blocks are free, want %d", order, free, 1<<14-tc.want-held)
				}
				want := []Withholder{{"n", tc.want}}
				if tc.want == 0 {
					want = nil
				}
				if got := l.Withholders(cut); !slices.Equal(got, want) {
					t.Errorf("%s: withheld by %v, want %v", order, got, want)
				}
			}
		})
	}
}

// The watches of blocks and of CiliumNodes are not in step: whichever comes first, the same is
// reserved.
func TestBlocksAndCiliumNodesInAnyOrder(t *testing.T) {
	cn := fixtures.CiliumNode("n", "5", "10.0.0.0/30")
	cn.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.1", "10.0.0.5")
	cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.6", "10.0.0.9")
	blocks := []func(*Ledger){
		func(l *Ledger) { l.Upsert(fixtures.Block("10.0.0.0/30", "p", "n", 1)) },
		func(l *Ledger) { l.Upsert(fixtures.Block("10.0.0.4/30", "p", "n", 2)) }, // not listed
	}
	node := func(l *Ledger) { l.UpsertCiliumNode(ciliumnode.NewView(cn)) }
	for name, events := range map[string][]func(*Ledger){
		"blocks first":         {blocks[0], blocks[1], node},
		"the CiliumNode first": {node, blocks[1], blocks[0]},
		"between":              {blocks[1], node, blocks[0]},
	} {
		l := NewLedger()
		for _, event := range events {
			event(l)
		}
		if want := fixtures.Prefixes("10.0.0.0/30", "10.0.0.9/32"); !slices.Equal(l.nodes.namedBy("n"), want) {
			t.Errorf("%s: named are %v, want %v", name, l.nodes.namedBy("n"), want)
		}
		if n := l.space.Reservations(fixtures.Prefix("10.0.0.4/30")); n != 0 {
			t.Errorf("%s: %d reservations in a block of the node's own", name, n)
		}
	}
}

// The nodes with agents that do not run a family are the nodes with a block of the pool and a
// CiliumNode that says so. An address that is configured (local-router-ipv6) shows that the agent runs
// IPv6, unless it is of a pool.
func TestNotRunning(t *testing.T) {
	version := 0
	agent := func(name string, own ...string) *ciliumnode.View {
		cn := fixtures.IPv4Agent()
		version++
		cn.Name, cn.ResourceVersion = name, strconv.Itoa(version)
		for _, addr := range own {
			cn.Spec.Addresses = append(cn.Spec.Addresses, ciliumv2.NodeAddress{Type: "CiliumInternalIP", IP: addr})
		}
		return ciliumnode.NewView(cn)
	}
	router := fixtures.IPv4Agent()
	router.Name, router.ResourceVersion = "n", "99"
	router.Spec.Addresses = append(router.Spec.Addresses, ciliumv2.NodeAddress{Type: "CiliumInternalIP", IP: "fd00::1"})
	router.Status.IPAM.Used["10.0.0.1"] = ipamtypes.AllocationIP{Owner: "router"}
	first, second := fixtures.Block("10.0.0.0/29", "p", "n", 1), fixtures.Block("10.0.0.8/29", "p", "n", 2)
	l := ReadyLedger(first, second, fixtures.Block("10.0.0.16/29", "q", "m", 3))
	for i, step := range []struct {
		do   func()
		want []string // of p, in IPv6
	}{
		{func() {}, nil},
		{func() { l.UpsertCiliumNode(agent("n")) }, []string{"n"}},
		{func() { l.UpsertCiliumNode(agent("n", "fd00::1")) }, nil},
		{func() { l.UpsertCiliumNode(agent("n")) }, []string{"n"}},
		{func() { l.RemoveCiliumNode(agent("n")) }, nil},
		{func() { l.UpsertCiliumNode(agent("n")) }, []string{"n"}},
		{func() { l.UpsertCiliumNode(agent("a")) }, []string{"n"}},
		{func() { l.Upsert(fixtures.Block("10.0.1.0/29", "p", "a", 4)) }, []string{"a", "n"}},
		{func() { l.Remove(first) }, []string{"a", "n"}},
		{func() { l.Remove(second) }, []string{"a"}},
		{func() { l.UpsertCiliumNode(ciliumnode.NewView(router)) }, []string{"a"}},
		{func() { l.Upsert(fixtures.Block("10.0.0.0/29", "p", "n", 12)) }, []string{"a"}},
		{func() { NewPools(fixtures.Defaults(), l).Set(fixtures.DualStack()) }, []string{"a", "n"}},
	} {
		step.do()
		if got := l.NotRunning(ipalloc.IPv6, "p"); !slices.Equal(got, step.want) {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
		if got := append(l.NotRunning(ipalloc.IPv4, "p"), l.NotRunning(ipalloc.IPv6, "q")...); len(got) > 0 {
			t.Errorf("step %d: in IPv4, or of q: %v", i, got)
		}
	}
}

// Only the latest version of a CiliumNode that is there is known.
func TestCiliumNodeAt(t *testing.T) {
	versioned := func(uid types.UID, version string) *ciliumv2.CiliumNode {
		cn := fixtures.CiliumNode("n", version)
		cn.UID = uid
		return cn
	}
	l := ReadyLedger()
	l.UpsertCiliumNode(ciliumnode.NewView(versioned("u", "5")))
	l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("without", "")))
	for name, cn := range map[string]*ciliumv2.CiliumNode{
		"earlier": versioned("u", "4"), "later": versioned("u", "6"), "another object": versioned("v", "5"),
		"another name": fixtures.CiliumNode("m", "5"), "no version": fixtures.CiliumNode("without", ""),
	} {
		if l.CiliumNodeAt(cn) != nil {
			t.Errorf("%s: it is known", name)
		}
	}
	if known := l.CiliumNodeAt(versioned("u", "5")); known == nil || known != l.nodes.seen["n"].view {
		t.Errorf("the same version: %v is known", known)
	}
	l.RemoveCiliumNode(ciliumnode.NewView(versioned("u", "7")))
	if l.CiliumNodeAt(versioned("u", "7")) != nil {
		t.Error("a deleted one is known")
	}
}

// An address of a Node, or a range that a pool reserves, is no reason to walk the other
// CiliumNodes.
func TestMayName(t *testing.T) {
	l, block := ReadyLedger(fixtures.Block("10.0.0.0/28", "p", "n", 1)), fixtures.Prefix("10.0.0.0/28")
	pools := NewPools(fixtures.Defaults(), l)
	pools.Set(fixtures.Edited(fixtures.PodIPPool("p", 1, "10.0.0.0/24"), func(s *v1alpha1.PodIPPoolSpec) {
		s.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.0/29"}}
	}))
	l.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "x"}, fixtures.Prefixes("10.0.0.5/32"))
	l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "1", "10.0.0.0/28")))
	l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("m", "1", "10.1.0.0/28")))
	if got := l.mayName("n", block); len(got) > 0 {
		t.Errorf("%v may name a part of it", got)
	}
	l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("m", "2", "10.0.0.8/29")))
	if got := l.mayName("n", block); !slices.Equal(got, []string{"m"}) {
		t.Errorf("%v may name a part of it, want m", got)
	}
	pools.Delete("p")
	l.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "x"}, nil)
	if got := l.mayName("n", block); !slices.Equal(got, []string{"m"}) {
		t.Errorf("with nothing else reserved, %v may name a part of it, want m", got)
	}
}
