package state

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// An agent's own address in its node's blocks and CIDRs concerns only that node. If it lies
// elsewhere, as one from an earlier IPAM may, no pod gets it.
func TestRouterOutsideItsNode(t *testing.T) {
	router := func(version, addr string, podCIDRs ...string) *ciliumnode.View {
		cn := fixtures.CiliumNode("b", version, podCIDRs...)
		cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "InternalIP", IP: "192.0.2.1"}, {Type: "CiliumInternalIP", IP: addr}}
		return ciliumnode.NewView(cn)
	}
	own := fixtures.Block("10.0.0.8/29", "p", "b", 2)
	ledger := ReadyLedger(fixtures.Block("10.0.0.0/29", "p", "a", 1))
	for _, step := range []struct {
		what string
		do   func()
		want []netip.Prefix
	}{
		{"in its CIDR, which has no block yet", func() { ledger.UpsertCiliumNode(router("1", "10.0.0.9", "10.0.0.8/29")) }, fixtures.Prefixes("192.0.2.1/32")},
		{"in no CIDR", func() { ledger.UpsertCiliumNode(router("2", "10.0.0.9")) }, fixtures.Prefixes("10.0.0.9/32", "192.0.2.1/32")},
		{"in its block", func() { ledger.Upsert(own) }, fixtures.Prefixes("192.0.2.1/32")},
		{"in a block of another node", func() { ledger.UpsertCiliumNode(router("3", "10.0.0.3", "10.0.0.8/29")) }, fixtures.Prefixes("10.0.0.3/32", "192.0.2.1/32")},
		{"in its block, and a cloud lists it as an address of the Node", func() {
			ledger.UpsertCiliumNode(router("4", "10.0.0.9"))
			ledger.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "b"}, fixtures.Prefixes("10.0.0.9/32", "10.0.0.10/32"))
		}, fixtures.Prefixes("10.0.0.10/32", "192.0.2.1/32")},
		{"the Node is gone", func() { ledger.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "b"}, nil) }, fixtures.Prefixes("192.0.2.1/32")},
		{"its CiliumNode is gone", func() { ledger.RemoveCiliumNode(router("5", "10.0.0.3")) }, nil},
	} {
		step.do()
		ledger.Exclusions.ExcludeCiliumNode("b", true)
		got := exclude.CIDRs(slices.Concat(ledger.Exclusions.Excluded(fixtures.Prefix("10.0.0.0/8")), ledger.Exclusions.Excluded(fixtures.Prefix("192.0.2.0/24"))))
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: excluded %v, want %v", step.what, got, step.want)
		}
	}
}

// A CiliumNode without a Node withholds free addresses alone: a block that a node holds keeps them.
func TestCiliumNodeWithoutNodeOnlyAsks(t *testing.T) {
	for hasNode, usable := range map[bool]int{true: 1, false: 2} {
		c, stale := clusterOf(fixtures.Block("10.0.0.0/30", "p", "n", 1)), fixtures.CiliumNode("gone", "1")
		c.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "1", "10.0.0.0/30")))
		stale.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "InternalIP", IP: "10.0.0.1"}}
		c.Ledger.UpsertCiliumNode(ciliumnode.NewView(stale))
		c.Ledger.Exclusions.ExcludeCiliumNode("gone", hasNode)
		if got := len(c.Snapshot("n", fixtures.Node(), fixtures.Noon()).Shares[0].State.Blocks[0].Usable); got != usable {
			t.Errorf("with a Node %t: %d addresses of the block are usable, want %d", hasNode, got, usable)
		}
		if got := exclude.CIDRs(c.Ledger.Exclusions.Excluded(fixtures.Prefix("10.0.0.0/30"))); !slices.Equal(got, fixtures.Prefixes("10.0.0.1/32")) {
			t.Errorf("with a Node %t: withheld %v", hasNode, got)
		}
	}
}

// A block has no usable address of a node, or that another node's CiliumNode names and that is neither
// published nor in use: it would not be published. If agents are
// assigned whole blocks, it has all or none: none if another names one, unless it is listed already, or
// in use.
func TestUsable(t *testing.T) {
	tests := map[string]struct {
		crd       bool
		router    string
		excluded  []netip.Prefix
		listed    []string
		published []string
		pod       []string
		want      int
	}{
		"nobody names it":                       {router: "10.0.1.1", want: 2},
		"another node names it":                 {router: "10.0.0.1", want: 0},
		"it is listed":                          {router: "10.0.0.1", listed: []string{"10.0.0.0/30"}, want: 2},
		"a pod uses it":                         {router: "10.0.0.1", pod: []string{"10.0.0.2"}, want: 2},
		"its addresses are assigned one by one": {crd: true, router: "10.0.0.1", want: 1},
		"unless it is published":                {crd: true, router: "10.0.0.1", listed: []string{"10.0.0.0/30"}, published: []string{"10.0.0.1"}, want: 2},
		"that of a listed block is not":         {crd: true, router: "10.0.0.1", listed: []string{"10.0.0.0/30"}, published: []string{"10.0.0.2"}, want: 1},
		"nor beside one that a pod uses":        {crd: true, router: "10.0.0.1", pod: []string{"10.0.0.2"}, want: 1},
		"a pod uses that one":                   {crd: true, router: "10.0.0.1", pod: []string{"10.0.0.1"}, want: 2},
		"nobody names an address of it":         {crd: true, router: "10.0.1.1", want: 2},
		"nobody does, and it is listed":         {crd: true, router: "10.0.1.1", listed: []string{"10.0.0.0/30"}, want: 2},
		"a node has an address of it":           {crd: true, router: "10.0.1.1", excluded: fixtures.Prefixes("10.0.0.1/32"), want: 1},
		"a node has one of a whole block":       {router: "10.0.1.1", excluded: fixtures.Prefixes("10.0.0.1/32"), want: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mode, mine := ciliumnode.MultiPool, fixtures.Pooled(2, test.listed...)
			if test.crd {
				mode, mine = ciliumnode.CRD, fixtures.CiliumNode("n", "1", test.listed...)
				mine.Spec.IPAM.Pool = fixtures.AllocationMap(test.published...)
			}
			c := clusterOf(fixtures.Block("10.0.0.0/30", "p", "n", 1))
			c.Ledger.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "x"}, test.excluded)
			other := fixtures.CiliumNode("m", "1")
			other.Spec.Addresses = []ciliumv2.NodeAddress{{Type: addressing.NodeCiliumInternalIP, IP: test.router}}
			c.Ledger.UpsertCiliumNode(mode.View(other))
			c.Ledger.UpsertCiliumNode(mode.View(mine))
			c.Pods.Set(ReadPod(fixtures.Pod("a", "a", "n", test.pod...)), fixtures.Noon())
			if got := c.Snapshot("n", nil, fixtures.Noon()).Shares[0].State.Blocks[0].Count(); got != test.want {
				t.Errorf("%d usable addresses, want %d", got, test.want)
			}
		})
	}
}

// Of large blocks that are assigned whole, no decision and no count lists the addresses.
func TestLargeBlocks(t *testing.T) {
	c := clusterOf(fixtures.Block("10.0.0.0/16", "large", "n", 1), fixtures.Block("fd00::/48", "large", "n", 2), fixtures.Block("fd00:0:1::/48", "large", "m", 3))
	c.Defaults.WholeBlocks = true
	c.Pools = NewPools(c.Defaults, c.Ledger)
	c.Pools.Set(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "large", Generation: 1}, Spec: v1alpha1.PodIPPoolSpec{
		IPv4: &v1alpha1.IPv4Ranges{BlockSize: 16, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/15"}}},
		IPv6: &v1alpha1.IPv6Ranges{BlockSize: 48, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/46"}}},
	}})
	c.Ledger.UpsertCiliumNode(ciliumnode.MultiPool.View(fixtures.Pooled(8, "fd00::/48")))
	pool := c.Pools.Get("large")
	decide := func() {
		s := c.Snapshot("n", fixtures.Node(), fixtures.Noon())
		for _, share := range append(s.Shares, c.Snapshot("m", nil, fixtures.Noon()).Shares...) { // m has no CiliumNode
			plan, _ := expand.Decide(fixtures.Noon(), share.Policy, share.State, expand.Budget{}, expand.Memory{})
			if b := share.State.Blocks[0]; b.Size != 1<<16-2 || len(b.Usable)+len(plan.Publish) > 0 {
				t.Errorf("%s has %d addresses, %d usable: %s", b.CIDR, b.Size, len(b.Usable), plan)
			}
			if share.Family == ipalloc.IPv4 && !slices.Equal(plan.Assign, fixtures.Prefixes("10.0.0.0/16")) {
				t.Errorf("assigns %v", plan.Assign)
			}
		}
		for i, u := range FamiliesOf(c.Ledger, pool) {
			counts := v1alpha1.StateCounts{Assignable: 4, Held: 2, InService: 2, Free: 2}
			if i == 0 {
				counts = v1alpha1.StateCounts{Assignable: 2, Held: 1, InService: 1, Free: 1}
			}
			if is := u.Status.Addresses; u.Status.Blocks != counts || is.Assignable != counts.Assignable*(1<<16-2) || is.Free != counts.Free*(1<<16-2) {
				t.Errorf("%s: blocks %+v, addresses %+v", u.Family, u.Status.Blocks, is)
			}
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	decide()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<19 { // 65534 addresses alone take 1.5 MB
		t.Errorf("it takes %d bytes", used)
	}
}

// No block of a range of Services is claimed, but a held one keeps its addresses until a Service
// has one. A CiliumLoadBalancerIPPool that would take more than a quarter of the blocks of a CIDR of a
// pool takes none.
func TestAskedAddresses(t *testing.T) {
	o := clusterOf(fixtures.Block("10.0.0.0/30", "p", "n", 1))
	ledger, generation := o.Ledger, int64(9)
	set := func(cidr string, reserved ...v1alpha1.ReservedCIDR) {
		pool := fixtures.PodIPPool("p", 1, cidr)
		generation++
		pool.Generation, pool.Spec.Reserved = generation, reserved
		o.Pools.Set(pool)
	}
	set("10.0.0.0/28")
	check := func(what string, excluded, shared, free int) {
		t.Helper()
		pool := o.Pools.Get("p")
		cut, _ := pool.Cut(ipalloc.IPv4)
		got := []int{len(ledger.Exclusions.ExcludedFrom(pool)), len(ledger.Exclusions.SharedWith(pool)), int(ledger.Free(cut))}
		if want := []int{excluded, shared, free}; !slices.Equal(got, want) {
			t.Errorf("%s: excluded, shared, free are %v, want %v", what, got, want)
		}
	}
	usable := func() int {
		return o.Snapshot("n", nil, fixtures.Noon()).Shares[0].State.Blocks[0].Count()
	}
	offer := func(cidrs ...string) {
		ledger.Exclusions.Ask(exclude.Ask{By: exclude.Claimant{Kind: exclude.LoadBalancerPool, Name: "lb", Asks: true}, CIDRs: fixtures.Prefixes(cidrs...)})
	}
	check("none", 0, 0, 3)
	offer("10.0.0.2/32", "10.0.0.6/32")
	check("addresses of half of the blocks", 0, 2, 3)
	offer("10.0.0.1/32", "10.0.0.2/31")
	check("a quarter, though it is three addresses", 2, 0, 3)
	if n := usable(); n != 2 {
		t.Errorf("a held block of an offered range has %d usable addresses", n)
	}
	ledger.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Service, Name: "default/web"}, fixtures.Prefixes("10.0.0.1/32"))
	if n := usable(); n != 1 {
		t.Errorf("with an address of a Service the block has %d usable addresses", n)
	}
	check("an address of a Service", 2, 0, 3)
	offer("10.0.0.0/29")
	check("half", 1, 1, 3)
	set("10.0.0.0/27")
	check("a quarter, once the pool has grown", 2, 0, 6)
	set("10.0.0.0/28")
	check("half again", 1, 1, 3)
	set("10.0.0.0/28", v1alpha1.ReservedCIDR{CIDR: "10.0.0.0/29"})
	check("what the pool reserves is no news", 0, 0, 2)
	offer()
	ledger.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Service, Name: "default/web"}, nil)
	set("10.0.0.0/28")
	check("gone", 0, 0, 3)
}

// Which addresses objects withhold does not depend on the order in which the operator sees them and the
// pools, nor on a restart.
func TestAskedInAnyOrder(t *testing.T) {
	var asks []exclude.Ask
	for i := range 12 {
		asks = append(asks, exclude.Ask{
			By: exclude.Claimant{Kind: exclude.Service, Name: fmt.Sprintf("t/%d", i), Asks: true}, Since: fixtures.Noon().Add(time.Duration(i/2) * time.Second),
			CIDRs: fixtures.Prefixes(fmt.Sprintf("10.0.0.%d/32", i*4), fmt.Sprintf("10.0.0.%d/32", 128+i*8)),
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		late := asks[:len(asks)-r.IntN(3)]
		var steps []func()
		ledger := NewLedger()
		pools := NewPools(fixtures.Defaults(), ledger)
		for _, ask := range asks {
			steps = append(steps, func() { ledger.Exclusions.Ask(ask) })
		}
		steps = append(steps, ledger.SetReady, func() { pools.Set(fixtures.PodIPPool("p", 1, "10.0.0.0/24")) }, func() {
			pools.Set(fixtures.PodIPPool("q", 1, "10.0.0.0/26"))
		})
		r.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		for _, step := range steps {
			step()
		}
		for _, ask := range asks[len(late):] { // they come and go
			ledger.Exclusions.Ask(exclude.Ask{By: ask.By})
		}
		fresh := NewLedger()
		again := NewPools(fixtures.Defaults(), fresh)
		for _, name := range pools.Names() {
			again.Set(fixtures.PodIPPool(name, 1, pools.Get(name).AllRanges()[0].CIDR.String()))
		}
		for _, ask := range late {
			fresh.Exclusions.Ask(ask)
		}
		fresh.SetReady()
		for _, name := range pools.Names() {
			pool := pools.Get(name)
			cut, _ := pool.Cut(ipalloc.IPv4)
			if diff := cmp.Diff(fmt.Sprint(fresh.Exclusions.ExcludedFrom(pool), fresh.Exclusions.SharedWith(pool), fresh.Free(cut)), fmt.Sprint(ledger.Exclusions.ExcludedFrom(pool), ledger.Exclusions.SharedWith(pool), ledger.Free(cut))); diff != "" {
				t.Fatalf("after a restart (-), and before it (+):\n%s", diff)
			}
		}
	}
}

// Services of one namespace, and the surplus addresses of one Node, leave free blocks to nodes, and the
// addresses that nodes have.
func TestTenantsTakeNoPool(t *testing.T) {
	c := clusterOf(fixtures.Block("10.0.0.0/30", "p", "n", 1))
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/24")
	pool.Generation = 2
	c.Pools.Set(pool)
	node := fixtures.Node()
	for i := range 256 {
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		c.Ledger.Exclusions.Ask(exclude.Ask{By: exclude.Claimant{Kind: exclude.Service, Name: fmt.Sprint("t/", i), Asks: true}, CIDRs: exclude.Of([]netip.Addr{addr})})
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr.String()})
	}
	_, asked := exclude.OfNode(node)
	c.Ledger.Exclusions.Ask(exclude.Ask{By: exclude.Claimant{Kind: exclude.Node, Name: "x", Asks: true}, Since: fixtures.Noon(), CIDRs: asked})
	cut, _ := c.Pools.Get("p").Cut(ipalloc.IPv4)
	if free := c.Ledger.Free(cut); free < 47 { // three quarters of 64, without the held one
		t.Errorf("%d blocks are free", free)
	}
	if n := c.Snapshot("n", nil, fixtures.Noon()).Shares[0].State.Blocks[0].Count(); n != 2 {
		t.Errorf("the held block has %d usable addresses", n)
	}
}
