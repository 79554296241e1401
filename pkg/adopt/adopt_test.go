package adopt

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func TestMake(t *testing.T) {
	main := pool(t, "main", 27, "10.0.0.0/16")
	n1 := func(change ...func(*Node)) []Node {
		n := fromClusterPool("n1", main, "10.0.1.0/24")
		for _, c := range change {
			c(&n)
		}
		return []Node{n}
	}
	whole := pool(t, "main", 27, "10.0.0.0/16")
	whole.WholeBlocks = true
	toMultiPool := func(change func(*Node)) Input {
		n := fromClusterPool("n1", whole, "10.0.1.0/24")
		change(&n)
		return Input{Whole: true, Nodes: []Node{n}, Pools: []*crd.Pool{whole}}
	}
	new24 := []Block{{CIDR: prefix("10.0.1.0/24"), Pool: "main"}}
	tests := map[string]struct {
		in     Input
		blocks []Block  // of n1
		found  []string // severity, node, reason
	}{
		"a /24 in a pool of /27s": {in: Input{Nodes: n1()}, blocks: new24},
		"several of any size, one within another": {
			in: Input{Nodes: n1(func(n *Node) { n.AssignedCIDRs = prefixes("10.0.9.16/28", "10.0.1.0/24", "10.0.1.32/27") })},
			blocks: []Block{
				{CIDR: prefix("10.0.1.0/24"), Pool: "main"}, {CIDR: prefix("10.0.9.16/28"), Pool: "main"},
			},
		},
		"already there": {
			in:     Input{Nodes: n1(), Blocks: []crd.Block{adopted("10.0.1.0/24", "n1")}},
			blocks: []Block{{CIDR: prefix("10.0.1.0/24"), Pool: "main", Exists: true}},
		},
		"pinned by hand before": {
			in:     Input{Nodes: n1(), Blocks: []crd.Block{claimed("10.0.1.0/24", "n1")}},
			blocks: []Block{{CIDR: prefix("10.0.1.0/24"), Pool: "main", Exists: true}},
		},
		"there, and on its way out": {
			in: Input{Nodes: n1(), Blocks: []crd.Block{func() crd.Block {
				b := adopted("10.0.1.0/24", "n1")
				b.Deleting = true
				return b
			}()}},
			found: []string{"blocked n1 BlockLeaves"},
		},
		"what was always ours is nothing to move": {
			in: Input{
				Nodes:  n1(func(n *Node) { n.From, n.Reported = None, true }),
				Blocks: []crd.Block{claimed("10.0.1.0/24", "n1")},
			},
		},
		"a smaller block of another node in it": {
			in:    Input{Nodes: n1(), Blocks: []crd.Block{claimed("10.0.1.32/27", "n9")}},
			found: []string{"blocked n1 OverlapsBlock"},
		},
		"a smaller one of its own in it": {
			in:    Input{Nodes: n1(), Blocks: []crd.Block{claimed("10.0.1.32/27", "n1")}},
			found: []string{"blocked n1 OverlapsBlock"},
		},
		"in no pool": {
			in:    Input{Nodes: n1(func(n *Node) { n.AssignedCIDRs = prefixes("10.9.1.0/24") })},
			found: []string{"blocked n1 OutsidePools"},
		},
		"in a pool in part": {
			in:    Input{Nodes: n1(func(n *Node) { n.AssignedCIDRs = prefixes("10.0.0.0/15") }), Pools: nil},
			found: []string{"blocked n1 TooLarge"},
		},
		"in two ranges of a pool": {
			in: Input{
				Nodes: []Node{fromClusterPool("n1", pool(t, "main", 27, "10.0.1.0/25", "10.0.1.128/25"), "10.0.1.0/24")},
				Pools: []*crd.Pool{pool(t, "main", 27, "10.0.1.0/25", "10.0.1.128/25")},
			},
			found: []string{"blocked n1 SpansRanges"},
		},
		"larger than a block can be": {
			in:    Input{Nodes: n1(func(n *Node) { n.AssignedCIDRs = prefixes("10.0.0.0/19") })},
			found: []string{"blocked n1 TooLarge"},
		},
		"two nodes have the same": {
			in:    Input{Nodes: append(n1(), fromClusterPool("n2", main, "10.0.1.128/25"))},
			found: []string{"blocked n1 TwoNodes", "blocked n2 TwoNodes"},
		},
		"the other one is not requested": {
			in: Input{Nodes: append(n1(), func() Node {
				n := fromClusterPool("n2", main, "10.0.1.128/25")
				n.Chosen = false
				return n
			}())},
			found: []string{"blocked n1 TwoNodes"},
		},
		"a pod has an address elsewhere": {
			in:     Input{Nodes: n1(func(n *Node) { n.Used = usedBy("10.0.1.5", "default/a", "10.0.2.5", "default/b") })},
			blocks: new24,
			found:  []string{"blocked n1 AddressOutside"},
		},
		"keys that the agent gives out twice": {
			in:     Input{Nodes: n1(func(n *Node) { n.NonCanonical = addrs("10.0.1.7") })},
			blocks: new24,
			found:  []string{"blocked n1 OddKeys"},
		},
		"paused": {
			in:     Input{Nodes: n1(func(n *Node) { n.Paused = "the Node is paused" })},
			blocks: new24,
			found:  []string{"blocked n1 NodePaused"},
		},
		"addresses, and no IPAM gave them": {
			in:    Input{Nodes: n1(func(n *Node) { n.From, n.AssignedCIDRs, n.Used = None, nil, usedBy("172.16.0.9", "default/a") })},
			found: []string{"blocked n1 NothingGiven"},
		},
		"its range drains": {
			in: Input{
				Nodes: []Node{fromClusterPool("n1", pool(t, "main", 27, "-10.0.0.0/16"), "10.0.1.0/24")},
				Pools: []*crd.Pool{pool(t, "main", 27, "-10.0.0.0/16")},
			},
			blocks: new24,
			found:  []string{"warning n1 RangeDrains"},
		},
		"the pool that has it serves others": {
			in:     Input{Nodes: n1(func(n *Node) { n.Pools = []*crd.Pool{pool(t, "other", 27, "10.7.0.0/16")} })},
			blocks: new24,
			found:  []string{"warning n1 NotItsPool"},
		},
		"no pool serves it": {
			in:     Input{Nodes: n1(func(n *Node) { n.Pools = nil })},
			blocks: new24,
			found:  []string{"warning n1 NoPool", "warning n1 NotItsPool"},
		},
		"more pods than it has addresses for": {
			in: Input{Nodes: n1(func(n *Node) {
				n.AssignedCIDRs = prefixes("10.0.1.0/28")
				for i := range 13 {
					n.Pods = append(n.Pods, expand.Pod{Name: "default/" + string(rune('a'+i))})
				}
			})},
			blocks: []Block{{CIDR: prefix("10.0.1.0/28"), Pool: "main"}},
			found:  []string{"warning n1 FreeSpace"},
		},
		"more blocks than the pool allows": {
			in:     Input{Nodes: n1(func(n *Node) { n.AssignedCIDRs = disjoint(17) })},
			blocks: blocksOf(disjoint(17)...),
			found:  []string{"warning n1 TooManyBlocks"},
		},
		"no agent": {
			in: Input{Nodes: n1(func(n *Node) { n.Agent = "" })}, blocks: new24,
			found: []string{"warning n1 AgentMissing"},
		},
		"an old agent": {
			in: Input{Nodes: n1(func(n *Node) { n.Agent = "localhost:5000/cilium:v1.16.3" })}, blocks: new24,
			found: []string{"warning n1 Version"},
		},
		"an agent of whatever version": {
			in: Input{Nodes: n1(func(n *Node) { n.Agent = "localhost:5000/cilium" })}, blocks: new24,
			found: []string{"warning n1 Version"},
		},
		"to multi-pool mode, a /18": {
			in:     toMultiPool(func(n *Node) { n.AssignedCIDRs = prefixes("10.0.0.0/18") }),
			blocks: []Block{{CIDR: prefix("10.0.0.0/18"), Pool: "main"}},
		},
		"to multi-pool mode, a pod with a first address, a pod with a last one": {
			in: toMultiPool(func(n *Node) {
				n.Used = usedBy("10.0.1.0", "default/a", "10.0.1.7", "default/b", "10.0.1.255", "default/c")
			}),
			blocks: new24,
			found:  []string{"blocked n1 EdgeAddress", "blocked n1 EdgeAddress"},
		},
		"to multi-pool mode, its range drains": {
			in: Input{
				Whole: true,
				Nodes: []Node{fromClusterPool("n1", pool(t, "main", 27, "-10.0.0.0/16"), "10.0.1.0/24")},
				Pools: []*crd.Pool{pool(t, "main", 27, "-10.0.0.0/16")},
			},
			blocks: new24,
			found:  []string{"blocked n1 RangeDrains"},
		},
		"to multi-pool mode, more pods than it has addresses for": {
			in: toMultiPool(func(n *Node) {
				n.AssignedCIDRs = prefixes("10.0.1.0/28")
				for i := range 15 {
					n.Pods = append(n.Pods, expand.Pod{Name: "default/" + string(rune('a'+i))})
				}
			}),
			blocks: []Block{{CIDR: prefix("10.0.1.0/28"), Pool: "main"}},
			found:  []string{"warning n1 FreeSpace"},
		},
		"in multi-pool mode for good": {
			in: Input{
				Whole: true, Blocks: []crd.Block{claimed("10.0.1.0/24", "n1")},
				Nodes: n1(func(n *Node) { n.From, n.Used = None, usedBy("10.0.1.7", "default/b") }),
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.in.Pools == nil {
				tt.in.Pools = []*crd.Pool{main}
			}
			tt.in.Config = config()
			checkPlan(t, Make(tt.in), tt.blocks, tt.found)
		})
	}
}

// checkPlan checks the blocks of the first node, and the findings about all.
func checkPlan(t *testing.T, plan Plan, blocks []Block, found []string) {
	t.Helper()
	if diff := cmp.Diff(found, reasons(plan.Findings)); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%v", diff, plan.Findings)
	}
	if diff := cmp.Diff(blocks, plan.Nodes[0].Blocks, compareNetip(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("blocks of n1 (-want +got):\n%s", diff)
	}
	if plan.Blocked() != strings.Contains(strings.Join(found, " "), "blocked") {
		t.Errorf("blocked is %t", plan.Blocked())
	}
}

// disjoint returns n CIDRs that do not touch.
func disjoint(n int) []netip.Prefix {
	var out []netip.Prefix
	for i := range n {
		out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 27))
	}
	return out
}

func blocksOf(cidrs ...netip.Prefix) []Block {
	var out []Block
	for _, c := range cidrs {
		out = append(out, Block{CIDR: c, Pool: "main"})
	}
	return out
}

// Among pools that contain a CIDR, a pool that serves the node and still assigns the CIDR comes
// first.
func TestPoolOf(t *testing.T) {
	own, other := pool(t, "own", 27, "10.0.0.0/16"), pool(t, "aaa", 27, "10.0.0.0/16")
	in := Input{Nodes: []Node{fromClusterPool("n1", own, "10.0.1.0/24")}, Pools: []*crd.Pool{other, own}, Config: config()}
	if got := Make(in).Nodes[0].Blocks; got[0].Pool != "own" {
		t.Errorf("got pool %s, want that which serves the node", got[0].Pool)
	}
	resolved := crd.ResolveOverlaps(in.Pools) // aaa is first
	in.Pools, in.Nodes[0].Pools = resolved, resolved[1:]
	if got := Make(in).Nodes[0].Blocks; got[0].Pool != "aaa" {
		t.Errorf("got pool %s, want that which gives the addresses out", got[0].Pool)
	}
}

// A CIDR returned after it was adopted goes to its present owner, unless the agent can have
// read it.
func TestReturned(t *testing.T) {
	main := pool(t, "main", 27, "10.0.0.0/16")
	blocks := []crd.Block{adopted("10.0.1.0/27", "n1"), adopted("10.0.1.32/27", "n1")}
	nodes := func() []Node {
		return []Node{fromClusterPool("n1", main, "10.0.1.0/27"), fromClusterPool("n2", main, "10.0.1.32/27")}
	}
	plan := Make(Input{Nodes: nodes(), Blocks: blocks, Pools: []*crd.Pool{main}, Config: config()})
	if plan.Blocked() || len(plan.Nodes[0].Withdraw) != 1 || plan.Nodes[0].Withdraw[0].CIDR != prefix("10.0.1.32/27") {
		t.Errorf("withdrawn: %v, findings: %v", plan.Nodes[0].Withdraw, plan.Findings)
	}
	if want := []Block{{CIDR: prefix("10.0.1.32/27"), Pool: "main"}}; !cmp.Equal(want, plan.Nodes[1].Blocks, compareNetip()) {
		t.Errorf("n2 is to have %v, want %v", plan.Nodes[1].Blocks, want)
	}
	for name, change := range map[string]func(*Node){
		"it is published":    func(n *Node) { n.Published = addrs("10.0.1.40") },
		"the agent has read": func(n *Node) { n.Reported = true },
	} {
		t.Run(name, func(t *testing.T) {
			n := nodes()
			change(&n[0])
			plan := Make(Input{Nodes: n, Blocks: blocks, Pools: []*crd.Pool{main}, Config: config()})
			if len(plan.Nodes[0].Withdraw) > 0 {
				t.Errorf("withdrawn: %v", plan.Nodes[0].Withdraw)
			}
			if diff := cmp.Diff([]string{"blocked n2 OverlapsBlock"}, reasons(plan.Findings)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// The plan of a large fleet takes seconds: no step walks all nodes for each node.
func TestByHandInLargeFleet(t *testing.T) {
	main := pool(t, "main", 27, "10.0.0.0/8")
	var in Input
	var want []Block
	in.Pools, in.Config = []*crd.Pool{main}, config()
	for i := range 20_000 {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 11), byte(i >> 3), byte(i << 5)}), 27)
		in.Nodes = append(in.Nodes, Node{
			Name: fmt.Sprintf("n%05d", i), From: CRD, Published: main.Usable(block), Reported: true, Pools: in.Pools, Agent: image, Chosen: true,
		})
		want = append(want, blocksOf(block)...)
	}
	plan := Make(in)
	for i, n := range plan.Nodes {
		if !slices.Equal(n.Blocks, want[i:i+1]) {
			t.Fatalf("%s gets %v, want %v", n.Name, n.Blocks, want[i])
		}
	}
	if len(plan.Nodes) != len(want) || plan.Blocked() {
		t.Errorf("%d nodes, findings %v", len(plan.Nodes), plan.Findings)
	}
}

func TestByHand(t *testing.T) {
	main := pool(t, "main", 27, "10.0.0.0/16")
	byHand := func(name string, published ...string) Node {
		return Node{Name: name, From: CRD, Published: addrs(published...), Reported: true, Pools: []*crd.Pool{main}, Agent: image, Chosen: true}
	}
	tests := map[string]struct {
		nodes  []Node
		blocks []crd.Block
		want   []Block
		found  []string
	}{
		"as the pool would cut it": {
			nodes: []Node{byHand("n1", "10.0.0.3", "10.0.0.9", "10.0.0.64")},
			want:  blocksOf(prefixes("10.0.0.0/27", "10.0.0.64/27")...),
			found: []string{"warning n1 MoreThanBefore", "warning n1 MoreThanBefore"},
		},
		"another has the other half": {
			nodes: []Node{byHand("n1", "10.0.0.3", "10.0.0.9"), byHand("n2", "10.0.0.16")},
			want:  blocksOf(prefixes("10.0.0.0/28")...),
			found: []string{"warning n1 MoreThanBefore", "warning n2 MoreThanBefore"},
		},
		"both have one": {
			nodes: []Node{byHand("n1", "10.0.0.3", "10.0.0.9"), byHand("n2", "10.0.0.3")},
			want:  blocksOf(prefixes("10.0.0.8/29")...),
			found: []string{"blocked n1 TwoNodes", "blocked n2 TwoNodes", "warning n1 MoreThanBefore"},
		},
		"beside a block that there is": {
			nodes:  []Node{byHand("n1", "10.0.0.3", "10.0.0.9")},
			blocks: []crd.Block{claimed("10.0.0.16/28", "n9")},
			want:   blocksOf(prefixes("10.0.0.0/28")...),
			found:  []string{"warning n1 MoreThanBefore"},
		},
		"podCIDRs come first": {
			nodes: []Node{func() Node {
				n := byHand("n1", "10.0.0.3", "10.0.4.5")
				n.AssignedCIDRs = prefixes("10.0.4.0/24")
				return n
			}()},
			want:  blocksOf(prefixes("10.0.0.0/27", "10.0.4.0/24")...),
			found: []string{"warning n1 MoreThanBefore"},
		},
		"in no pool": {
			nodes: []Node{byHand("n1", "10.9.0.3")},
			found: []string{"blocked n1 OutsidePools"},
		},
		"nothing that it had not": {
			nodes: []Node{byHand("n1", allOf(main.Usable(prefix("10.0.0.0/27")))...)},
			want:  blocksOf(prefixes("10.0.0.0/27")...),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			checkPlan(t, Make(Input{Nodes: tt.nodes, Blocks: tt.blocks, Pools: []*crd.Pool{main}, Config: config()}), tt.want, tt.found)
		})
	}
}

func allOf(list []netip.Addr) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}

func TestSettings(t *testing.T) {
	tests := map[string]struct {
		change func(map[string]string)
		want   []string
	}{
		"as they should be":  {func(map[string]string) {}, nil},
		"of a cloud":         {func(c map[string]string) { c["ipam"] = "eni" }, []string{"blocked  Settings"}},
		"no mode":            {func(c map[string]string) { delete(c, "ipam") }, []string{"warning  Settings"}},
		"no endpoint routes": {func(c map[string]string) { delete(c, "enable-endpoint-routes") }, []string{"warning  Settings"}},
		"iptables":           {func(c map[string]string) { c["enable-bpf-masquerade"] = "false" }, []string{"warning  Settings"}},
		"no masquerading":    {func(c map[string]string) { c["enable-bpf-masquerade"], c["enable-ipv4-masquerade"] = "false", "false" }, nil},
		"a range too early":  {func(c map[string]string) { c["ipv4-range"] = "169.254.254.0/24" }, []string{"warning  Settings"}},
		"a range with the switch": {func(c map[string]string) {
			c["ipam"], c["enable-ipv4"], c["ipv4-range"] = "crd", "true", "169.254.254.0/24"
		}, nil},
		"no range after the switch": {func(c map[string]string) { c["ipam"], c["enable-ipv4"] = "crd", "true" }, []string{"warning  Settings"}},
		"native routing":            {func(c map[string]string) { c["ipv4-native-routing-cidr"] = "10.0.0.0/17" }, []string{"warning  Settings"}},
		"a kvstore":                 {func(c map[string]string) { c["kvstore"], c["auto-direct-node-routes"] = "etcd", "true" }, []string{"warning  Settings"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := Input{Pools: []*crd.Pool{pool(t, "main", 27, "10.0.0.0/16")}, Config: config()}
			tt.change(in.Config.Data)
			if diff := cmp.Diff(tt.want, reasons(Make(in).Findings)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff([]string{"warning  Settings"}, reasons(Make(Input{Whole: true, Config: &ciliumconfig.Config{Data: map[string]string{
		"ipam": "cluster-pool", "enable-ipv4-masquerade": "true", "kvstore": "etcd", "auto-direct-node-routes": "true",
	}}}).Findings)); diff != "" {
		t.Errorf("to multi-pool mode (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"warning  Settings"}, reasons(Make(Input{}).Findings)); diff != "" {
		t.Errorf("not readable (-want +got):\n%s", diff)
	}
}

// Findings about free space use the pool that rules the node.
func TestFreeSpaceNamesThePool(t *testing.T) {
	main := pool(t, "main", 27, "10.0.0.0/16")
	n := fromClusterPool("n1", main, "10.0.1.0/30")
	plan := Make(Input{
		Nodes: []Node{n}, Pools: []*crd.Pool{main}, Config: config(),
		Free: func(p *crd.Pool, f ipalloc.Family) uint64 {
			if p.Name != "main" || f != ipalloc.IPv4 {
				t.Errorf("requested %s %s", p.Name, f)
			}
			return 7
		},
	})
	if len(plan.Findings) != 1 || !strings.Contains(plan.Findings[0].String(), "free in pool main: 7") {
		t.Errorf("got %v", plan.Findings)
	}
}
