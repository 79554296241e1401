package state

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// claimsNext returns the block that a node claims next, and forgets the claim.
func claimsNext(t *testing.T, c *Cluster, node string) string {
	t.Helper()
	cidr, _, err := c.Ledger.Claim(ipalloc.IPv4, node, "", c.Pools.Match(nil))
	if err != nil {
		return err.Error()
	}
	c.Ledger.Forget(node, cidr)
	return cidr.String()
}

// A pinned block goes to its node alone, which claims it before all others, as long as the pin is a
// block of a pool.
func TestPinnedBlock(t *testing.T) {
	last := fixtures.Prefix("10.0.0.12/30")
	c := clusterOf()
	free := func(what string, want uint64) {
		t.Helper()
		if n := c.FreeIn("p", ipalloc.IPv4); n != want {
			t.Errorf("%s: %d blocks are free, want %d", what, n, want)
		}
	}
	claims := func(what, node, want string) {
		t.Helper()
		if got := claimsNext(t, c, node); got != want {
			t.Errorf("%s: %s claims %s, want %s", what, node, got, want)
		}
	}
	c.Ledger.Pins.Set(crd.Pin{CIDR: fixtures.Prefix("10.0.0.0/29"), Node: "n"})
	free("a pin of a wrong size", 4)
	c.Ledger.Pins.Set(crd.Pin{CIDR: last, Node: "n"})
	free("pinned", 3)
	claims("pinned", "n", "10.0.0.12/30")
	claims("pinned", "m", "10.0.0.0/30")
	if away := c.Ledger.Pins.Away(c.Pools.Get("p")); !slices.Equal(away, []netip.Prefix{last}) {
		t.Errorf("away are %v", away)
	}

	if before := c.Ledger.Pins.Set(crd.Pin{CIDR: last, Node: "m"}); before != "n" {
		t.Errorf("it was pinned to %q", before)
	}
	claims("moved", "n", "10.0.0.0/30")
	claims("moved", "m", "10.0.0.12/30")

	c.Ledger.Upsert(fixtures.Block("10.0.0.12/30", "p", "m", 1))
	claims("held", "m", "10.0.0.8/30") // its buddy
	if _, _, err := c.Ledger.ClaimPinned(ipalloc.IPv4, "m", "", c.Pools.Match(nil)); !errors.Is(err, ipalloc.ErrExhausted) {
		t.Errorf("held: another pinned block: %v", err)
	}
	if away := c.Ledger.Pins.Away(c.Pools.Get("p")); len(away) > 0 {
		t.Errorf("held: away are %v", away)
	}
	c.Ledger.Remove(fixtures.Block("10.0.0.12/30", "p", "m", 1))
	free("returned", 3)

	c.Pools.Delete("p")
	c.Pools.Set(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	free("the pool came back", 3)
	var freed []netip.Prefix
	c.Ledger.Changed = func(list, _, _ []netip.Prefix, _ []string) { freed = append(freed, list...) }
	c.Ledger.Pins.Remove(last)
	free("no longer pinned", 4)
	if !slices.Contains(freed, last) {
		t.Errorf("freed are %v", freed)
	}
}

// A node claims a pinned block also if its own CiliumNode names addresses of it, as after a restore.
func TestPinOfNamedAddresses(t *testing.T) {
	c := clusterOf()
	c.Ledger.Pins.Set(crd.Pin{CIDR: fixtures.Prefix("10.0.0.12/30"), Node: "n"})
	cn := fixtures.CiliumNode("n", "1")
	cn.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.13", "10.0.0.14")
	c.Ledger.UpsertCiliumNode(ciliumnode.NewView(cn))
	if got := claimsNext(t, c, "n"); got != "10.0.0.12/30" {
		t.Errorf("it claims %s", got)
	}
}

// A block that the pool gives to no node is not claimed by a pin either.
func TestPinOfABlockThatIsKeptBack(t *testing.T) {
	edit := func(change func(*v1alpha1.PodIPPoolSpec)) func(*Cluster) {
		return func(c *Cluster) { c.Pools.Set(fixtures.Edited(fixtures.PodIPPool("p", 1, "10.0.0.0/28"), change)) }
	}
	for name, change := range map[string]func(c *Cluster){
		"another holds it":     func(c *Cluster) { c.Ledger.Upsert(fixtures.Block("10.0.0.12/30", "p", "m", 1)) },
		"another holds a part": func(c *Cluster) { c.Ledger.Upsert(fixtures.Block("10.0.0.12/31", "p", "m", 1)) },
		"another names a part": func(c *Cluster) {
			cn := fixtures.CiliumNode("m", "1")
			cn.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.13")
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(cn))
		},
		"it has a Node's": func(c *Cluster) {
			c.Ledger.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "x"}, fixtures.Prefixes("10.0.0.13/32"))
		},
		"the pool is paused":     edit(func(s *v1alpha1.PodIPPoolSpec) { s.Paused = new(true) }),
		"its CIDR is cordoned":   edit(func(s *v1alpha1.PodIPPoolSpec) { s.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationCordon }),
		"the API server refuses": func(c *Cluster) { c.Ledger.Refuse("n", fixtures.Prefix("10.0.0.12/30")) },
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterOf()
			c.Ledger.Pins.Set(crd.Pin{CIDR: fixtures.Prefix("10.0.0.12/30"), Node: "n"})
			change(c)
			if cidr, _, err := c.Ledger.ClaimPinned(ipalloc.IPv4, "n", "", c.Pools.Match(nil)); err == nil {
				t.Errorf("it claims %s", cidr)
			}
		})
	}
}

// singles returns a cluster in multi-pool mode with the pool p of single addresses, and a node n.
func singles() *Cluster {
	c := clusterOf()
	c.Defaults.CiliumPools, c.Defaults.WholeBlocks = true, true
	c.Pools = NewPools(c.Defaults, c.Ledger)
	obj := fixtures.PodIPPool("p", 1, "10.0.0.0/20")
	obj.Spec.CiliumPoolName, obj.Spec.IPv4.BlockSize = "singles", 32
	c.Pools.Set(obj)
	c.Ledger.UpsertCiliumNode(ciliumnode.MultiPool.View(fixtures.Pooled(2)))
	return c
}

// pinPod pins an address to a pod, which a CiliumPodIPPool selects.
func (c *Cluster) pinPod(cidr netip.Prefix, pod string) {
	c.Ledger.Pins.Set(crd.Pin{CIDR: cidr, Owner: pod})
	c.CiliumPools.Set(ciliumpool.Read(ciliumpool.New(c.CiliumPools.OfOwner(pod, c.Ledger), [2]int{31, 0}, ciliumpool.Marks{})))
}

// An address that is pinned to a pod goes to the pod's node, for the pod's own Cilium pool, and to no
// other claim. A block stays what it was claimed for.
func TestAddressPinnedToPod(t *testing.T) {
	const pod = "default/web-0"
	for _, ciliumPool := range []string{crd.CiliumPoolOfOwner(pod), crd.OldCiliumPoolOfOwner(pod)} {
		t.Run(ciliumPool, func(t *testing.T) { testAddressPinnedToPod(t, pod, ciliumPool) })
	}
}

func testAddressPinnedToPod(t *testing.T, pod, ciliumPool string) {
	c, first := singles(), fixtures.Prefix("10.0.0.0/32")
	c.CiliumPools.Set(ciliumpool.Read(ciliumpool.New(ciliumPool, [2]int{31, 0}, ciliumpool.Marks{})))
	c.pinPod(first, pod)
	c.Pods.Set(ReadPodWithRequest(fixtures.Pod("web-0", "1", "n")), fixtures.Noon())
	c.Pods.Set(ReadPodWithRequest(fixtures.Pod("web-1", "2", "n")), fixtures.Noon())
	if got := claimsNext(t, c, "n"); got != "10.0.0.1/32" {
		t.Errorf("another pod's claim takes %s", got)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	share := func() *Share {
		t.Helper()
		s := c.Snapshot("n", node, fixtures.Noon())
		i := slices.IndexFunc(s.Shares, func(share Share) bool { return share.CiliumPool == ciliumPool })
		if i < 0 {
			t.Fatalf("the node has no share for the pod: %+v", s.Shares)
		}
		return &s.Shares[i]
	}
	is := share()
	if len(is.Pools) != 1 || is.Pools[0].Name != "p" || len(is.State.Pods) != 1 {
		t.Fatalf("pools %v, pods %v", is.Pools, is.State.Pods)
	}
	cidr, _, err := c.Ledger.Claim(ipalloc.IPv4, "n", "", is.Pools)
	if err != nil || cidr != first {
		t.Fatalf("its claim takes %s (%v)", cidr, err)
	}
	if _, _, err := c.Ledger.Claim(ipalloc.IPv4, "m", "", is.Pools); !errors.Is(err, ipalloc.ErrExhausted) {
		t.Errorf("a second node claims, too: %v", err)
	}
	block := fixtures.Block(first.String(), "p", "n", 1)
	block.CiliumPool = ciliumPool
	c.Ledger.Upsert(block)
	c.pinPod(first, pod) // once more
	before := c.Ledger.Pins.HasOwners()
	c.Ledger.Pins.Remove(first)
	if !before || c.Ledger.Pins.HasOwners() {
		t.Errorf("an address is pinned to a pod: %t, and without its pin: %t", before, c.Ledger.Pins.HasOwners())
	}
	if of := c.CiliumPoolOf(block, c.Ledger.CiliumNode("n")); of != ciliumPool || len(share().State.Blocks) != 1 {
		t.Errorf("without the pin the block is for %s", of)
	}
	if pools := share().Pools; len(pools) > 0 {
		t.Errorf("without the pin %v serves it", pools)
	}
}

// The agent of a node that the pod has left may still request its address, and any pod may name its Cilium
// pool: neither gets the address.
func TestAddressOfPodElsewhere(t *testing.T) {
	const pod = "default/web-0"
	c := singles()
	c.pinPod(fixtures.Prefix("10.0.0.0/32"), pod)
	cn := fixtures.Pooled(2)
	cn.Spec.IPAM.Pools.Requested = append(cn.Spec.IPAM.Pools.Requested, ipamtypes.IPAMPoolRequest{Pool: crd.CiliumPoolOfOwner(pod), Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 1}})
	c.Ledger.UpsertCiliumNode(ciliumnode.MultiPool.View(cn))
	other := fixtures.Pod("other", "1", "n")
	other.Annotations = map[string]string{poolAnnotation: crd.CiliumPoolOfOwner(pod)}
	c.Pods.Set(ReadPodWithRequest(other), fixtures.Noon())
	for _, there := range []bool{false, true} {
		if there {
			c.Pods.Set(ReadPodWithRequest(fixtures.Pod("web-0", "2", "n")), fixtures.Noon())
		}
		s := c.Snapshot("n", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, fixtures.Noon())
		i := slices.IndexFunc(s.Shares, func(share Share) bool { return share.CiliumPool == crd.CiliumPoolOfOwner(pod) })
		if i < 0 {
			t.Fatalf("no share: %+v", s.Shares)
		}
		want := 0
		if there {
			want = 1
		}
		if is := s.Shares[i].State; is.BlockAssignment.Requested != want || len(is.Pods) != want {
			t.Errorf("the pod is there: %t; requested are %d, pods %v", there, is.BlockAssignment.Requested, is.Pods)
		}
		unserved := s.UnservedPods()
		if len(unserved) != 1 || !strings.Contains(unserved["default/other"].Message, "is for pod default/web-0 alone") {
			t.Errorf("unserved: %+v", unserved)
		}
	}
}

// A pod owns an address by its name unless the API server has generated it, and by a label. A StatefulSet has its own
// generateName.
func TestOfOwners(t *testing.T) {
	c := singles()
	cut := strings.Repeat("a", 58) // of a longer one, by the API server
	for name, generate := range map[string]string{"db": "", "web-0": "web-", "web-9999": "web-", "api-x7k2p": "api-", "api-22222": "api-", cut + "x7k2p": cut + "aa-"} {
		pod := fixtures.Pod(name, name, "n")
		pod.GenerateName, pod.Labels = generate, map[string]string{"app": strings.TrimSuffix(generate, "-")}
		if name == "web-0" {
			pod.Annotations = map[string]string{poolAnnotation: "blue", RequireAnnotation: "true"}
		}
		c.Pods.Set(ReadPodWithRequest(pod), fixtures.Noon())
	}
	c.Pods.SetNamespace("default", PoolRequestOf(&metav1.ObjectMeta{Labels: map[string]string{"team": "a"}}))
	var got []string
	for _, pod := range c.Pods.OfOwners(PickingOf(fixtures.Picking("blue", map[string]string{"app": "web"}, map[string]string{"team": "a"}), fixtures.Picking(crd.CiliumPoolOfOwner("default/web-0"), map[string]string{"app": "web"}, nil))) {
		got = append(got, fmt.Sprintf("%s of %s: %v %v, %v", pod.Name, pod.Namespace, pod.NamesPool(), pod.Strict, pod.OtherCandidates(pod.OwnerBy(""))))
	}
	want := []string{
		"default/db of team=a: false false, []", "default/web-0 of team=a: true true, [blue]",
		"default/web-9999 of team=a: false false, [blue zz.web-0.default.pods.cilium-pool.io]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("GOT %v", got)
	}
}

// A reserved address is nobody's until it is pinned, or free again.
func TestReserve(t *testing.T) {
	c := singles()
	pool := c.Pools.Get("p")
	cidr, err := c.Ledger.Pins.Reserve(ipalloc.IPv4, pool)
	if err != nil || cidr != fixtures.Prefix("10.0.0.0/32") {
		t.Fatalf("%s, %v", cidr, err)
	}
	if got := claimsNext(t, c, "n"); got != "10.0.0.1/32" {
		t.Errorf("a claim takes %s", got)
	}
	c.Ledger.Pins.Set(crd.Pin{CIDR: cidr, Owner: "default/web-0"})
	c.Ledger.Pins.Unreserve(cidr)
	if got := claimsNext(t, c, "n"); got != "10.0.0.1/32" {
		t.Errorf("pinned: a claim takes %s", got)
	}
	c.Ledger.Pins.Remove(cidr)
	if got := claimsNext(t, c, "n"); got != "10.0.0.0/32" {
		t.Errorf("unpinned: a claim takes %s", got)
	}
	if _, err := c.Ledger.Pins.Reserve(ipalloc.IPv6, pool); !errors.Is(err, ipalloc.ErrExhausted) {
		t.Errorf("of a family that it lacks: %v", err)
	}
}

// BenchmarkSnapshotOfPinnedPods takes snapshots of a node with 110 pods, 10 of them with an address of
// their own, beside so many others in the cluster that have one.
func BenchmarkSnapshotOfPinnedPods(b *testing.B) {
	for _, others := range []int{0, 1000, 4000} {
		b.Run(strconv.Itoa(others), func(b *testing.B) {
			c, addr := singles(), netip.MustParseAddr("10.0.0.0")
			for i := range 10 + others {
				c.pinPod(netip.PrefixFrom(addr, 32), fmt.Sprintf("default/web-%d", i))
				addr = addr.Next()
			}
			for i := range 110 {
				c.Pods.Set(ReadPodWithRequest(fixtures.Pod(fmt.Sprintf("web-%d", 1_000_000*(i/10)+i), strconv.Itoa(i), "n")), fixtures.Noon())
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			b.ReportAllocs()
			for b.Loop() {
				c.Snapshot("n", node, fixtures.Noon())
			}
		})
	}
}
