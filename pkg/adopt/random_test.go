package adopt

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// For any cluster, however tangled: no two blocks share an address, every address in use is in a
// block of its node or the node has a blocking finding, the order of the input does not matter, and
// once the blocks exist there are none left to create.
func TestPlansOfAnyCluster(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		in := randomInput(t, r)
		plan := Make(in)
		where := fmt.Sprintf("seed %d", seed)
		noOverlap(t, where, in, plan)
		allCovered(t, where, in, plan)
		shuffled := in
		shuffled.Nodes, shuffled.Blocks = slices.Clone(in.Nodes), slices.Clone(in.Blocks)
		r.Shuffle(len(in.Nodes), func(i, j int) {
			shuffled.Nodes[i], shuffled.Nodes[j] = shuffled.Nodes[j], shuffled.Nodes[i]
		})
		r.Shuffle(len(in.Blocks), func(i, j int) {
			shuffled.Blocks[i], shuffled.Blocks[j] = shuffled.Blocks[j], shuffled.Blocks[i]
		})
		if diff := cmp.Diff(plan, Make(shuffled), compareNetip()); diff != "" {
			t.Errorf("%s: the order matters (-sorted +shuffled):\n%s", where, diff)
		}
		nothingLeft(t, where, in, plan)
		if t.Failed() {
			return
		}
	}
}

// randomInput returns a cluster in 10.0.0.0/24 and a little around it.
func randomInput(t *testing.T, r *rand.Rand) Input {
	main := pool(t, "main", int32(26+r.IntN(4)), "10.0.0.0/25", "10.0.0.128/26")
	in := Input{Pools: []*crd.Pool{main}, Config: config()}
	some := func() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(220))}) }
	cidr := func() netip.Prefix { return netip.PrefixFrom(some(), 25+r.IntN(6)).Masked() }
	for i := range 1 + r.IntN(4) {
		n := Node{Name: fmt.Sprint("n", i), Agent: image, Chosen: r.IntN(5) > 0, Used: map[netip.Addr]string{}, From: ClusterPool}
		if r.IntN(4) > 0 {
			n.Pools = in.Pools
		}
		if n.From = []Source{ClusterPool, MultiPool, CRD}[r.IntN(3)]; n.From == CRD {
			n.Reported = true
			for range r.IntN(12) {
				n.Published = append(n.Published, some())
			}
		}
		for range r.IntN(3) {
			n.AssignedCIDRs = append(n.AssignedCIDRs, cidr())
		}
		for range r.IntN(6) {
			n.Used[some()] = "default/p"
		}
		if len(n.AssignedCIDRs) > 0 && r.IntN(2) == 0 {
			n.Used[n.AssignedCIDRs[0].Addr()] = "default/q"
		}
		in.Nodes = append(in.Nodes, n)
	}
	for range r.IntN(3) {
		b := adopted(cidr().String(), fmt.Sprint("n", r.IntN(5)))
		if r.IntN(2) == 0 {
			b.AdoptedFrom = ""
		}
		clash := func(o crd.Block) bool { return o.CIDR.Overlaps(b.CIDR) }
		if !slices.ContainsFunc(in.Blocks, clash) {
			in.Blocks = append(in.Blocks, b)
		}
	}
	return in
}

// blocksAfter returns all blocks after the plan has been carried out.
func blocksAfter(in Input, plan Plan) []crd.Block {
	var gone []netip.Prefix
	for _, n := range plan.Nodes {
		gone = append(gone, crd.CIDRs(n.Withdraw)...)
	}
	all := slices.DeleteFunc(slices.Clone(in.Blocks), func(b crd.Block) bool { return slices.Contains(gone, b.CIDR) })
	for _, n := range plan.Nodes {
		for _, b := range n.Blocks {
			if !b.Exists {
				all = append(all, adopted(b.CIDR.String(), n.Name))
			}
		}
	}
	return all
}

func noOverlap(t *testing.T, where string, in Input, plan Plan) {
	t.Helper()
	all := blocksAfter(in, plan)
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.CIDR.Overlaps(b.CIDR) {
				t.Errorf("%s: %s of %s and %s of %s share addresses", where, a.CIDR, a.Node, b.CIDR, b.Node)
			}
		}
	}
}

func allCovered(t *testing.T, where string, in Input, plan Plan) {
	t.Helper()
	all := blocksAfter(in, plan)
	for _, n := range in.Nodes {
		if !n.Chosen {
			continue
		}
		blocked := slices.ContainsFunc(plan.Findings, func(f Finding) bool { return f.Node == n.Name && f.Severity == Blocked })
		for addr := range n.Used {
			has := slices.ContainsFunc(all, func(b crd.Block) bool { return b.Node == n.Name && b.CIDR.Contains(addr) })
			if !has && !blocked {
				t.Errorf("%s: %s of node %s is in no block of it, and nothing is said", where, addr, n.Name)
			}
		}
	}
}

func nothingLeft(t *testing.T, where string, in Input, plan Plan) {
	t.Helper()
	in.Blocks = blocksAfter(in, plan)
	for _, n := range Make(in).Nodes {
		for _, b := range n.Blocks {
			if !b.Exists {
				t.Errorf("%s: %s of %s is still to be made", where, b.CIDR, n.Name)
			}
		}
		if len(n.Withdraw) > 0 {
			t.Errorf("%s: %v of %s is still to be withdrawn", where, n.Withdraw, n.Name)
		}
	}
}
