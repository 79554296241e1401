package node

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
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

// listed are the CIDRs that the agent of node n was told.
func (b *bed) listed() []netip.Prefix {
	b.T.Helper()
	return b.CiliumNode().PodCIDRs
}

// agentWrites is a write of the agent of node n.
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
		t.Errorf("told (-want +got):\n%s", diff)
	}
	cn := &ciliumv2.CiliumNode{}
	if err := b.API.Get(t.Context(), types.NamespacedName{Name: "n"}, cn); err != nil {
		t.Fatal(err)
	}
	if len(cn.Spec.IPAM.Pool)+len(cn.Spec.IPAM.PodCIDRs) > 0 {
		t.Errorf("fields of crd mode are written: %v %v", cn.Spec.IPAM.Pool, cn.Spec.IPAM.PodCIDRs)
	}
	b.Check("at the end")
	b.rests()
}

// Whatever write is the last one, or has its answer lost, the rules hold and the
// node ends up with what it should have.
func TestMultiPoolSurvivesEveryWrite(t *testing.T) {
	survivesEveryWrite(t, ciliumnode.MultiPool, 4, func(b *bed) {
		if len(b.listed()) != 2 || len(b.Blocks()) != 2 {
			b.T.Errorf("told %v of blocks %v; want two of two", b.listed(), b.Blocks())
		}
	})
}

func TestMultiPoolGrowsAsAsked(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b.settle()
	if len(b.Blocks()) != 1 {
		t.Fatalf("blocks are %+v; want the one that covers what the agent asks for", b.Blocks())
	}
	b.agentWrites(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":5}}]}}}}`)
	b.settle()
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"), b.listed(), fixtures.CompareNetip()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	b.Check("at the end")
}

// returned is node n whose agent has just given back 10.0.0.4/30.
func returned(t *testing.T) *bed {
	return poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.InService))
}

// What the agent gave back rests, and goes only after the CiliumNode has changed
// since: whatever write is the last one.
func TestMultiPoolReturnedBlockRests(t *testing.T) {
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
			b.T.Fatal("it rested too short")
		}
		b.Clock.SetTime(b.Clock.Now().Add(time.Minute + time.Second))
		b.settle()
		if b.has("10.0.0.4/30") {
			b.T.Errorf("it is still there: %+v", b.Blocks())
		}
		b.Clock.SetTime(b.Clock.Now().Add(time.Hour))
		b.settle()
		if v := b.CiliumNode(); len(v.Release) > 0 || !slices.Equal(v.PodCIDRs, fixtures.Prefixes("10.0.0.0/30")) {
			b.T.Errorf("left over: %v, told %v", v.Release, v.PodCIDRs)
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

// A block that has rested stays while its CiliumNode, read live, lists a CIDR that
// shares addresses with it and is no block: its agent gives them to pods.
func TestMultiPoolGivesUpNothingThatIsListed(t *testing.T) {
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
				t.Error("the block was given up")
			}
		})
	}
}

// A leader that fell asleep with the patch in its hand wakes up after the block
// went to another node: nothing else has happened to the CiliumNode.
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

// An agent that lists again what rests has it back.
func TestMultiPoolTakenBackWhileItRests(t *testing.T) {
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

// The same where no pool serves the node any more.
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

func TestMultiPoolCiliumNodeIsPutBack(t *testing.T) {
	last := fixtures.Pooled(9, "10.0.0.0/30", "10.0.0.4/30", "172.16.0.0/24")
	last.ResourceVersion = "1"
	last.Spec.IPAM.Pools.Allocated = slices.Insert(last.Spec.IPAM.Pools.Allocated, 0, ipamtypes.IPAMPoolAllocation{Pool: "blue"})
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.CoolingDown))
	b.r.Ledger.RemoveCiliumNode(ciliumnode.MultiPool.ToStored(last))
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	v := b.CiliumNode()
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.0/30", "172.16.0.0/24"), v.PodCIDRs, fixtures.CompareNetip()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if v.BlockDemand.Reported() || len(v.Release) > 0 {
		t.Errorf("heard %t, release entries %v; want an agent that has yet to speak, and no handshake with it", v.BlockDemand.Reported(), v.Release)
	}
}

// What is another node's block by now is put back for no pool of Cilium's.
func TestMultiPoolCiliumNodeIsPutBackWithoutWhatIsAnothersNow(t *testing.T) {
	last := fixtures.Listing("10.8.0.0/30")
	last.Spec.IPAM.Pools.Allocated[1].CIDRs = append(last.Spec.IPAM.Pools.Allocated[1].CIDRs, fixtures.PodCIDR("10.0.0.4/30"))
	last.ResourceVersion = "1"
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/28"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b.r.Ledger.RemoveCiliumNode(ciliumnode.MultiPool.ToStored(last))
	b.r.Ledger.Upsert(fixtures.Block("10.0.0.4/30", "p", "m", 1))
	b.r.Ledger.Upsert(fixtures.Block("10.8.0.0/30", "blues", "m", 1))
	b.ensureCiliumNode()
	b.tells(fixtures.Prefixes("10.0.0.0/30"), nil)
}

// Where nobody remembers the CiliumNode, its agent may still have every block the
// node holds: it is told all of them, whatever the need.
func TestMultiPoolForgottenCiliumNode(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService),
		fixtures.BlockObject("10.0.0.4/30", ipalloc.InService), fixtures.BlockObject("10.0.0.8/30", ipalloc.InService), fixtures.BlockObject("10.0.0.12/30", ipalloc.CoolingDown))
	b.settle()
	v := b.CiliumNode()
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"), v.PodCIDRs, fixtures.CompareNetip()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if len(v.Release) > 0 {
		t.Errorf("release entries %v: this agent is asked for no report", v.Release)
	}
	b.Check("at the end")
}

func TestMultiPoolTornAwayBlockIsMadeAgain(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.8/30"))
	b.settle()
	if !b.has("10.0.0.8/30") || len(b.Blocks()) != 1 {
		t.Errorf("blocks are %+v", b.Blocks())
	}
	b.Check("at the end")
}

// What CiliumNodes name, in whatever field, is taken.
func TestMultiPoolClaimsNothingNamed(t *testing.T) {
	other := fixtures.CiliumNode("m", "", "10.0.0.4/30")
	other.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{
		{Pool: "blue", CIDRs: fixtures.Pooled(0, "10.0.0.0/30").Spec.IPAM.Pools.Allocated[0].CIDRs},
	}
	other.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.9")
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), other)
	b.settle()
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.12/30"), b.listed(), fixtures.CompareNetip()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// Of a block that is told whole nothing can be kept back, so one with a reserved
// address is not assigned even where the remainder is to be published.
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

// A block is given back only where the list says so, read live: what the watch shows
// may be older than what another process told.
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
