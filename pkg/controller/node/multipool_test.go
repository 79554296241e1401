package node

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func poolBed(t *testing.T, objects ...client.Object) *bed {
	t.Helper()
	return newBedIn(t, ciliumnode.MultiPool, objects...)
}

// listed returns the CIDRs that node n's CiliumNode lists.
func (b *bed) listed() []netip.Prefix {
	b.T.Helper()
	return b.CiliumNode().PodCIDRs
}

// agentWrites applies a patch as the agent of node n.
func (b *bed) agentWrites(patch string) {
	b.T.Helper()
	if err := b.API.Patch(b.T.Context(), fixtures.CiliumNode("n", ""), fakeapi.RawMerge(patch)); err != nil {
		b.T.Fatal(err)
	}
}

func TestMultiPoolFirstBlocks(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	calls, err := b.reconcile()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"create CiliumNode", "create PodIPBlock", "create PodIPBlock", "patch CiliumNode"}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30"), b.listed(), fixtures.CompareNetip()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	cn := &ciliumv2.CiliumNode{}
	if err := b.API.Get(t.Context(), types.NamespacedName{Name: "n"}, cn); err != nil {
		t.Fatal(err)
	}
	if len(cn.Spec.IPAM.Pool)+len(cn.Spec.IPAM.PodCIDRs) > 0 {
		t.Errorf("fields of crd mode are written: %v %v", cn.Spec.IPAM.Pool, cn.Spec.IPAM.PodCIDRs)
	}
	b.Check("at the end")
	b.settled()
}

// Whichever write is the last one, or loses its response, the rules hold and the node ends up in
// its right state.
func TestMultiPoolSurvivesEveryWrite(t *testing.T) {
	survivesEveryWrite(t, ciliumnode.MultiPool, 4, func(b *bed) {
		if len(b.listed()) != 2 || len(b.Blocks()) != 2 {
			b.T.Errorf("listed %v of blocks %v; want two of two", b.listed(), b.Blocks())
		}
	})
}

func TestMultiPoolGrowsAsAsked(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b.settle()
	if len(b.Blocks()) != 1 {
		t.Fatalf("blocks are %+v; want the one that covers what the agent requests", b.Blocks())
	}
	b.agentWrites(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":5}}]}}}}`)
	b.settle()
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"), b.listed(), fixtures.CompareNetip()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	b.Check("at the end")
}

// returned is node n after its agent returned 10.0.0.4/30.
func returned(t *testing.T) *bed {
	return poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.InService))
}

// A block that the agent returned cools down, and is released only after the CiliumNode has
// changed since, whichever write is the last one.
func TestMultiPoolReturnedBlockCoolsDown(t *testing.T) {
	watch := func(b *bed) func(call string) {
		version := ""
		return func(call string) {
			switch call {
			case "update PodIPBlock status":
				version = b.CiliumNode().ResourceVersion
			case "delete PodIPBlock", "patch PodIPBlock":
				if b.CiliumNode().ResourceVersion == version {
					b.T.Error("the block goes though an old patch could still publish it")
				}
			}
		}
	}
	finish := func(b *bed) {
		b.settle()
		if !b.has("10.0.0.4/30") {
			b.T.Fatal("it cooled down too briefly")
		}
		b.Clock.SetTime(b.Clock.Now().Add(time.Minute + time.Second))
		b.settle()
		if b.has("10.0.0.4/30") {
			b.T.Errorf("it is still there: %+v", b.Blocks())
		}
		b.Clock.SetTime(b.Clock.Now().Add(time.Hour))
		b.settle()
		if v := b.CiliumNode(); len(v.Release) > 0 || !slices.Equal(v.PodCIDRs, fixtures.Prefixes("10.0.0.0/30")) {
			b.T.Errorf("left over: %v, listed %v", v.Release, v.PodCIDRs)
		}
		b.Check("at the end")
	}
	t.Run("all goes well", func(t *testing.T) {
		b := returned(t)
		b.Before = watch(b)
		finish(b)
	})
	for fails := range 6 {
		for _, what := range []fakeapi.Fate{fakeapi.Refused, fakeapi.Unheard} {
			t.Run(fmt.Sprintf("write %d, fate %d", fails, what), func(t *testing.T) {
				b := returned(t)
				b.Before = watch(b)
				n := 0
				b.Fate = func(string) fakeapi.Fate {
					if n++; n == fails+1 {
						return what
					}
					return fakeapi.Done
				}
				for range 3 {
					_, _ = b.reconcile() // fails once
				}
				b.Clock.SetTime(fixtures.Noon().Add(time.Minute + time.Second))
				for range 4 {
					_, _ = b.reconcile()
				}
				b.Fate = func(string) fakeapi.Fate { return fakeapi.Done }
				b.restart()
				b.Clock.SetTime(b.Clock.Now().Add(time.Hour))
				b.settle()
				if b.has("10.0.0.4/30") {
					t.Errorf("it is still there: %+v", b.Blocks())
				}
				b.Check("at the end")
			})
		}
	}
}

// A block that has cooled down stays while its CiliumNode, read live, lists a CIDR that
// overlaps it and is not a block: its agent assigns those addresses to pods.
func TestMultiPoolReleasesNothingThatIsListed(t *testing.T) {
	for name, cidrs := range map[string]string{
		"the block": `"10.0.0.0/30","10.0.0.12/30"`, "what it is part of": `"10.0.0.0/30","10.0.0.8/29"`, "part of it": `"10.0.0.0/30","10.0.0.12/31"`,
	} {
		t.Run(name, func(t *testing.T) {
			b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"),
				fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.12/30", ipalloc.CoolingDown))
			b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
			b.moved("10.0.0.12/30")
			b.Lag()
			b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":[` + cidrs + `]}]}}}}`)
			if _, err := b.reconcile(); err != nil {
				t.Fatal(err)
			}
			if !b.has("10.0.0.12/30") {
				t.Error("the block was released")
			}
		})
	}
}

// A leader that was paused before it sent the patch resumes after the block went to another node,
// although the CiliumNode has not changed otherwise.
func TestMultiPoolLateLeaderLoses(t *testing.T) {
	b := returned(t)
	old := b.CiliumNode()
	b.restart()
	b.settle()
	b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
	b.settle()
	if b.has("10.0.0.4/30") {
		t.Fatal("the block is still the node's")
	}
	late := ciliumnode.Change{Publish: fixtures.Addrs("10.0.0.5"), Blocks: fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30")}
	if _, err := b.r.CiliumNodes.Apply(t.Context(), old, late); !apierrors.IsConflict(err) {
		t.Errorf("the late patch: %v, want a conflict", err)
	}
	b.Check("at the end")
}

// An agent that lists a cooling-down block again gets it back.
func TestMultiPoolTakenBackWhileItCoolsDown(t *testing.T) {
	b := returned(t)
	b.settle()
	b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":["10.0.0.0/30","10.0.0.4/30"]}]}}}}`)
	b.settle()
	b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
	b.settle()
	for _, k := range b.Blocks() {
		if k.Phase != ipalloc.InService {
			t.Errorf("%s is in phase %v", k.CIDR, k.Phase)
		}
	}
	if len(b.Blocks()) != 2 {
		t.Errorf("blocks are %+v", b.Blocks())
	}
	b.Check("at the end")
}

// The same if no pool serves the node any more.
func TestMultiPoolTakenBackWithoutAPool(t *testing.T) {
	b := returned(t)
	b.settle()
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Generation, pool.Spec.NodeSelector = 2, &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}
	b.r.Pools.Set(pool)
	b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":["10.0.0.0/30","10.0.0.4/30"]}]}}}}`)
	b.settle()
	if !b.has("10.0.0.4/30") {
		t.Error("a block that the agent has is gone")
	}
	b.Check("at the end")
}

func TestMultiPoolCiliumNodeIsRestored(t *testing.T) {
	last := fixtures.Pooled(9, "10.0.0.0/30", "10.0.0.4/30", "172.16.0.0/24")
	last.ResourceVersion = "1"
	last.Spec.IPAM.Pools.Allocated = slices.Insert(last.Spec.IPAM.Pools.Allocated, 0, ipamtypes.IPAMPoolAllocation{Pool: "blue"})
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.CoolingDown))
	b.r.Ledger.RemoveCiliumNode(ciliumnode.MultiPool.View(last))
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	v := b.CiliumNode()
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.0/30", "172.16.0.0/24"), v.PodCIDRs, fixtures.CompareNetip()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if v.BlockAssignment.Reported() || len(v.Release) > 0 {
		t.Errorf("heard %t, release entries %v; want an agent that has yet to speak, and no handshake with it", v.BlockAssignment.Reported(), v.Release)
	}
}

// A block that now belongs to another node is not restored for any Cilium pool.
func TestMultiPoolCiliumNodeIsRestoredWithoutWhatIsAnothersNow(t *testing.T) {
	last := fixtures.Listing("10.8.0.0/30")
	last.Spec.IPAM.Pools.Allocated[1].CIDRs = append(last.Spec.IPAM.Pools.Allocated[1].CIDRs, fixtures.PodCIDR("10.0.0.4/30"))
	last.ResourceVersion = "1"
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/28"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b.r.Ledger.RemoveCiliumNode(ciliumnode.MultiPool.View(last))
	b.r.Ledger.Upsert(fixtures.Block("10.0.0.4/30", "p", "m", 1))
	b.r.Ledger.Upsert(fixtures.Block("10.8.0.0/30", "blues", "m", 1))
	b.ensureCiliumNode()
	b.lists(fixtures.Prefixes("10.0.0.0/30"), nil)
}

// If the operator does not remember the CiliumNode, the agent may still have every block the node
// holds, so all of them are listed, at any demand.
func TestMultiPoolForgottenCiliumNode(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService),
		fixtures.BlockObject("10.0.0.4/30", ipalloc.InService), fixtures.BlockObject("10.0.0.8/30", ipalloc.InService), fixtures.BlockObject("10.0.0.12/30", ipalloc.CoolingDown))
	b.settle()
	v := b.CiliumNode()
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"), v.PodCIDRs, fixtures.CompareNetip()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if len(v.Release) > 0 {
		t.Errorf("release entries %v: this agent gets no report request", v.Release)
	}
	b.Check("at the end")
}

func TestMultiPoolForciblyRemovedBlockIsRecreated(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.8/30"))
	b.settle()
	if !b.has("10.0.0.8/30") || len(b.Blocks()) != 1 {
		t.Errorf("blocks are %+v", b.Blocks())
	}
	b.Check("at the end")
}

// All CIDRs that CiliumNodes name, in any field, are taken.
func TestMultiPoolClaimsNothingNamed(t *testing.T) {
	other := fixtures.CiliumNode("m", "", "10.0.0.4/30")
	other.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{
		{Pool: "blue", CIDRs: fixtures.Pooled(0, "10.0.0.0/30").Spec.IPAM.Pools.Allocated[0].CIDRs},
	}
	other.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.9")
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), other)
	b.settle()
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.12/30"), b.listed(), fixtures.CompareNetip()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}

// A block that another node's CiliumNode has come to name since it was claimed cannot be listed.
// The node gets another one in its place, and returns it.
func TestMultiPoolReturnsAClaimNamedElsewhere(t *testing.T) {
	other := fixtures.CiliumNode("m", "")
	other.Spec.Addresses = []ciliumv2.NodeAddress{{Type: addressing.NodeCiliumInternalIP, IP: "10.0.0.5"}}
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(4, "10.0.0.0/30"), other,
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.InService))
	b.settle()
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.0/30", "10.0.0.8/30"), b.listed(), fixtures.CompareNetip()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	b.Clock.SetTime(b.Clock.Now().Add(time.Hour))
	b.settle()
	if b.has("10.0.0.4/30") {
		t.Errorf("it is still there: %+v", b.Blocks())
	}
	b.Check("at the end")
}

// In a block that is listed whole no address can be withheld, so a block with a reserved address is
// not assigned, even if only the remainder is to be published.
func TestMultiPoolReservedAddressKeepsItsBlock(t *testing.T) {
	for mode, want := range map[ciliumnode.Mode]netip.Prefix{ciliumnode.CRD: fixtures.Prefix("10.0.0.0/30"), ciliumnode.MultiPool: fixtures.Prefix("10.0.0.4/30")} {
		pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
		pool.Spec.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.1/32"}, {CIDR: "10.0.0.7/32"}} // the latter is an edge, which no pod gets
		pool.Spec.ReservedBlockPolicy = v1alpha1.PublishRemainder
		b := newBedIn(t, mode, fixtures.Node(), pool)
		b.settle()
		if got := b.listed()[0]; got != want {
			t.Errorf("%s: the first block is %s, want %s", mode, got, want)
		}
	}
}

// A block is released only if the list, read live, allows it: the watch may lag behind another
// process's write.
func TestMultiPoolBelievesNoOldList(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.InService))
	b.Lag()
	cn := &ciliumv2.CiliumNode{}
	if err := b.API.Get(t.Context(), types.NamespacedName{Name: "n"}, cn); err != nil {
		t.Fatal(err)
	}
	cn.Spec.IPAM.Pools.Allocated[0].CIDRs = append(cn.Spec.IPAM.Pools.Allocated[0].CIDRs, fixtures.PodCIDR("10.0.0.4/30"))
	if err := b.API.Update(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	for _, block := range b.Blocks() {
		if block.Phase != ipalloc.InService {
			t.Errorf("block %s is %s, and on the list", block.CIDR, block.Phase)
		}
	}
}
