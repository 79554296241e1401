package scheduling

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// place4 returns a candidate that admits a hundred pods and has blocks of pool p with ten IPv4
// addresses each.
func place4(name string, edits ...func(*Candidate)) Candidate {
	c := Candidate{
		Node: name, Pods: 100, Pools: [2][]string{{"p"}, nil}, PerBlock: [2]int{10, 0},
		Room: [2]expand.Room{{Blocks: 4, Addresses: 100}, {}},
	}
	for _, edit := range edits {
		edit(&c)
	}
	return c
}

func hasFree(n int) func(*Candidate)    { return func(c *Candidate) { c.Room[0].Free = n } }
func takesBack(n int) func(*Candidate)  { return func(c *Candidate) { c.Room[0].Back = n } }
func mayClaim(n int) func(*Candidate)   { return func(c *Candidate) { c.Room[0].Blocks = n } }
func mayPublish(n int) func(*Candidate) { return func(c *Candidate) { c.Room[0].Addresses = n } }
func admits(n int) func(*Candidate)     { return func(c *Candidate) { c.Pods = n } }
func claimsFrom(pools ...string) func(*Candidate) {
	return func(c *Candidate) { c.Pools[0] = pools }
}

// waits returns n pods that request an IPv4 address and suit these candidates.
func waits(n int, suits ...int) PodGroup {
	return PodGroup{Pods: n, Requests: [2]int{1, 0}, Suits: suits}
}

// spreadText formats the nodes that should have room as "name=addresses", and the number of pods
// that find it.
func spreadText(nodes []Candidate, s SpreadResult) string {
	var parts []string
	for i, n := range s.Expected {
		if n != [2]int{} {
			parts = append(parts, fmt.Sprintf("%s=%d", nodes[i].Node, n[0]+n[1]))
		}
	}
	text := fmt.Sprintf("%s; offered %d, growing %d, short %d", strings.Join(parts, " "), s.Offered, s.Growing, s.Short)
	missing := 0
	for _, n := range s.Missing {
		missing += n[0] + n[1]
	}
	if missing > 0 {
		text += fmt.Sprintf(", missing %d blocks", missing)
	}
	return text
}

func TestSpread(t *testing.T) {
	dual := func(c *Candidate) {
		c.Room[1], c.Pools[1], c.PerBlock[1] = c.Room[0], []string{"p"}, 10
	}
	group := func(n int, suits ...int) PodGroup {
		return PodGroup{Pods: n, Requests: [2]int{1, 1}, Suits: suits}
	}
	plenty := FreeBlocks{{"p": 100}, {"p": 100}}
	tests := map[string]struct {
		pods  []PodGroup
		nodes []Candidate
		free  FreeBlocks
		want  string
	}{
		"none": {nodes: []Candidate{place4("a")}, free: plenty, want: "; offered 0, growing 0, short 0"},
		"what is free comes first": {
			pods: []PodGroup{waits(5, 0, 1)}, nodes: []Candidate{place4("a"), place4("b", hasFree(5))}, free: plenty,
			want: "b=5; offered 5, growing 0, short 0",
		},
		"then a node grows": {
			pods: []PodGroup{waits(6, 0, 1)}, nodes: []Candidate{place4("a"), place4("b", hasFree(4))}, free: plenty,
			want: "a=2 b=4; offered 4, growing 2, short 0",
		},
		"a few pods let one node grow": {
			pods: []PodGroup{waits(8, 0, 1, 2)}, nodes: []Candidate{place4("a"), place4("b"), place4("c")}, free: plenty,
			want: "a=8; offered 0, growing 8, short 0",
		},
		"many are spread": {
			pods: []PodGroup{waits(20, 0, 1, 2)}, nodes: []Candidate{place4("a"), place4("b"), place4("c")}, free: plenty,
			want: "a=8 b=8 c=4; offered 0, growing 20, short 0",
		},
		"the node that admits the most comes first": {
			pods: []PodGroup{waits(3, 0, 1)}, nodes: []Candidate{place4("a", admits(10)), place4("b", admits(11))}, free: plenty,
			want: "b=3; offered 0, growing 3, short 0",
		},
		"no more than kubelets admit": {
			pods: []PodGroup{waits(9, 0, 1)}, nodes: []Candidate{place4("a", admits(2)), place4("b", admits(3), hasFree(9))}, free: plenty,
			want: "a=2 b=3; offered 3, growing 2, short 0",
		},
		"only nodes that suit them": {
			pods: []PodGroup{waits(3, 1)}, nodes: []Candidate{place4("a", hasFree(9)), place4("b")}, free: plenty,
			want: "b=3; offered 0, growing 3, short 0",
		},
		"pods that suit few nodes choose first": {
			pods: []PodGroup{waits(4, 0, 1), waits(4, 0)}, nodes: []Candidate{place4("a", hasFree(4)), place4("b", hasFree(4))}, free: plenty,
			want: "a=4 b=4; offered 8, growing 0, short 0",
		},
		"another node, as one is at its limit of blocks": {
			pods: []PodGroup{waits(3, 0, 1)}, nodes: []Candidate{place4("a", mayClaim(0)), place4("b")}, free: plenty,
			want: "b=3; offered 0, growing 3, short 0",
		},
		"another node, as one is at its limit of addresses": {
			pods: []PodGroup{waits(8, 0, 1)}, nodes: []Candidate{place4("a", mayPublish(5)), place4("b")}, free: plenty,
			want: "a=5 b=3; offered 0, growing 8, short 0",
		},
		"all are at their limits": {
			pods: []PodGroup{waits(3, 0)}, nodes: []Candidate{place4("a", mayClaim(0), hasFree(1))}, free: plenty,
			want: "a=1; offered 1, growing 0, short 0",
		},
		"what is leaving comes back": {
			pods: []PodGroup{waits(6, 0)}, nodes: []Candidate{place4("a", takesBack(6), mayClaim(0))},
			want: "a=6; offered 0, growing 6, short 0",
		},
		"the last block goes to one node, which gets all pods": {
			pods: []PodGroup{waits(10, 0, 1)}, nodes: []Candidate{place4("a"), place4("b")}, free: FreeBlocks{{"p": 1}, nil},
			want: "a=10; offered 0, growing 10, short 0",
		},
		"the rest waits for blocks": {
			pods: []PodGroup{waits(15, 0, 1)}, nodes: []Candidate{place4("a"), place4("b")}, free: FreeBlocks{{"p": 1}, nil},
			want: "a=10 b=5; offered 0, growing 10, short 5, missing 1 blocks",
		},
		"some wait for several blocks": {
			pods: []PodGroup{waits(25, 0)}, nodes: []Candidate{place4("a", hasFree(2))}, free: FreeBlocks{{"p": 1}, nil},
			want: "a=25; offered 2, growing 10, short 13, missing 2 blocks",
		},
		"no pool has a block": {
			pods: []PodGroup{waits(3, 0, 1)}, nodes: []Candidate{place4("a"), place4("b")},
			want: "a=3; offered 0, growing 0, short 3, missing 1 blocks",
		},
		"a node with another pool": {
			pods: []PodGroup{waits(3, 0, 1)}, nodes: []Candidate{place4("a"), place4("b", claimsFrom("p", "q"))}, free: FreeBlocks{{"q": 1}, nil},
			want: "b=3; offered 0, growing 3, short 0",
		},
		"bound pods come first": {
			pods: []PodGroup{waits(3, 0)}, nodes: []Candidate{place4("a", hasFree(-9))}, free: FreeBlocks{{"p": 1}, nil},
			want: "a=3; offered 0, growing 1, short 2, missing 1 blocks",
		},
		"several addresses each": {
			pods:  []PodGroup{{Pods: 2, Requests: [2]int{15, 0}, Suits: []int{0, 1}}},
			nodes: []Candidate{place4("a", hasFree(14)), place4("b", hasFree(16))}, free: plenty,
			want: "a=15 b=15; offered 1, growing 1, short 0",
		},
		"both families on the same node": {
			pods: []PodGroup{group(3, 0, 1)}, nodes: []Candidate{place4("a", hasFree(5)), place4("b", dual)}, free: plenty,
			want: "b=6; offered 0, growing 3, short 0",
		},
		"one family is short": {
			pods: []PodGroup{group(3, 0)}, nodes: []Candidate{place4("a", hasFree(9), dual, hasFree(9))}, free: FreeBlocks{nil, {"p": 0}},
			want: "a=6; offered 3, growing 0, short 0",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, spreadText(test.nodes, Spread(test.pods, test.nodes, test.free))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSpreadAnything checks that each pod counts at most once, on a node that it suits and that has
// or may get the addresses, and that the same input leads to the same result and is not modified.
func TestSpreadAnything(t *testing.T) {
	grew, short := 0, 0
	for seed := range uint64(5000) {
		random := rand.New(rand.NewPCG(seed, 0))
		pods, nodes, free := randomInput(random.IntN)
		was := fmt.Sprint(pods, nodes, free)
		s := Spread(pods, nodes, free)
		again := Spread(pods, nodes, free)
		if diff := cmp.Diff(s, again); diff != "" || fmt.Sprint(pods, nodes, free) != was {
			t.Fatalf("seed %d: not the same twice, or its input has changed: %s", seed, diff)
		}
		all, most := 0, [2]int{}
		for _, u := range pods {
			all += u.Pods
			for _, f := range ipalloc.Families() {
				most[f] += u.Pods * u.Requests[f]
			}
		}
		if s.Offered+s.Growing+s.Short > all {
			t.Errorf("seed %d: %d pods, and %+v", seed, all, s)
		}
		for _, f := range ipalloc.Families() {
			sum, blocks := 0, 0
			for i, n := range s.Expected {
				sum += n[f]
				room, admits := nodes[i].Room[f], nodes[i].Pods
				suits := slices.ContainsFunc(pods, func(u PodGroup) bool { return slices.Contains(u.Suits, i) })
				reach := room.Free + room.Back + min(room.Addresses, room.Blocks*nodes[i].PerBlock[f])
				if n[f] < 0 || n[f] > 0 && (n[f] > reach || !suits || admits <= 0) {
					t.Errorf("seed %d: node %+v is to have room for %v", seed, nodes[i], n)
				}
				if more := n[f] - room.Free - room.Back; more > 0 && n[f] > 0 {
					blocks += (more + nodes[i].PerBlock[f] - 1) / nodes[i].PerBlock[f]
				}
			}
			if has := int(free[f]["p"] + free[f]["q"]); s.Short == 0 && blocks > has {
				t.Errorf("seed %d: no pod is short, and nodes need %d of %d blocks: %+v", seed, blocks, has, s)
			}
			if sum > most[f] {
				t.Errorf("seed %d: room for %d addresses, and pods request %d", seed, sum, most[f])
			}
		}
		grew, short = grew+min(1, s.Growing), short+min(1, s.Short)
		if t.Failed() {
			t.FailNow()
		}
	}
	if grew == 0 || short == 0 {
		t.Errorf("nodes grow in %d cases, pods are short in %d: the cases are one-sided", grew, short)
	}
}

func randomInput(d func(n int) int) (pods []PodGroup, nodes []Candidate, free FreeBlocks) {
	for i := range d(6) {
		n := Candidate{Node: fmt.Sprint("n", i), Pods: d(30) - 1, PerBlock: [2]int{1 + d(16), 1 + d(16)}}
		for _, f := range ipalloc.Families() {
			n.Pools[f] = [][]string{{"p"}, {"q"}, {"p", "q"}, nil}[d(4)]
			n.Room[f] = expand.Room{Free: d(20) - 5, Back: d(3) * d(6), Blocks: d(5), Addresses: d(60)}
		}
		nodes = append(nodes, n)
	}
	for range d(4) {
		u := PodGroup{Pods: d(40), Requests: [2]int{d(3), d(3)}}
		for i := range nodes {
			if d(100) < 60 {
				u.Suits = append(u.Suits, i)
			}
		}
		pods = append(pods, u)
	}
	for f := range free {
		free[f] = map[string]uint64{"p": uint64(d(4)), "q": uint64(d(4))}
	}
	return pods, nodes, free
}
