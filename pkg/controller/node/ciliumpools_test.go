package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// blueBed is node n, with an agent that has its requests from the default pool, and a pool that
// serves the Cilium pool blue.
func blueBed(t *testing.T) *bed {
	return poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/28"),
		fixtures.Pooled(2, "10.0.0.0/30"), inService("10.0.0.0/30"))
}

// blueBlock is a block of bluePool on node n.
func blueBlock(cidr string) *v1alpha1.PodIPBlock {
	b := inService(cidr)
	b.Spec.PoolName = "blues"
	return b
}

// listedFor returns the CIDRs that node n's CiliumNode lists for a Cilium pool.
func (b *bed) listedFor(ciliumPool string) []netip.Prefix {
	b.T.Helper()
	return b.CiliumNode().Of(ciliumPool).PodCIDRs
}

func (b *bed) lists(def, blue []netip.Prefix) {
	b.T.Helper()
	for pool, want := range map[string][]netip.Prefix{"": def, "blue": blue} {
		if diff := cmp.Diff(want, b.listedFor(pool), fixtures.CompareNetip(), cmpopts.EquateEmpty()); diff != "" {
			b.T.Errorf("listed for pool %q (-want +got):\n%s", pool, diff)
		}
	}
}

const asksBlue = `{"spec":{"ipam":{"pools":{"requested":[{"pool":"blue","needed":{"ipv4-addrs":3}},{"pool":"default","needed":{"ipv4-addrs":2}}]}}}}`

func TestNoAgentRequestsACiliumPool(t *testing.T) {
	b := blueBed(t)
	b.settled()
	b.lists(fixtures.Prefixes("10.0.0.0/30"), nil)
}

// The PodIPPools that serve a Cilium pool satisfy an agent's request for it, and the blocks are
// listed under its name. The default pool keeps its own needs and blocks.
func TestAgentRequestsACiliumPool(t *testing.T) {
	b := blueBed(t)
	b.agentWrites(asksBlue)
	b.settle()
	b.lists(fixtures.Prefixes("10.0.0.0/30"), fixtures.Prefixes("10.8.0.0/30", "10.8.0.4/30"))
	for _, k := range b.Blocks() {
		if blue := k.Pool == "blues"; blue != strings.HasPrefix(k.Name, "10.8.") {
			t.Errorf("block %s is of pool %s", k.Name, k.Pool)
		}
	}
	b.settled()
}

// An agent gets a CIDR of a Cilium pool again that it returned when it needed the pool no more.
func TestAgentRequestsACiliumPoolAgain(t *testing.T) {
	b := blueBed(t)
	for range 2 {
		b.agentWrites(asksBlue)
		b.settle()
		b.lists(fixtures.Prefixes("10.0.0.0/30"), fixtures.Prefixes("10.8.0.0/30", "10.8.0.4/30"))
		b.agentWrites(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":2}}],"allocated":[{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`)
		b.settle()
		b.settleAfter(time.Hour)
		if n := len(b.Blocks()); n != 1 {
			t.Fatalf("%d blocks are left, want that of the default pool", n)
		}
	}
}

func TestFullCiliumPoolTakesFromNoOther(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/30"),
		fixtures.Pooled(2, "10.0.0.0/30"), inService("10.0.0.0/30"))
	b.agentWrites(asksBlue)
	b.settle()
	b.lists(fixtures.Prefixes("10.0.0.0/30"), fixtures.Prefixes("10.8.0.0/30"))
	if !b.r.Awaiting.Has("n") {
		t.Error("the node does not wait for addresses")
	}
}

// If a PodIPPool is deleted while one of its blocks is being claimed, the Cilium pool of the block
// is unknown. It is listed under none, not even the default pool.
func TestClaimedBlockWhosePoolIsGone(t *testing.T) {
	b := blueBed(t)
	b.agentWrites(asksBlue)
	b.Before = func(call string) {
		if call == "patch CiliumNode" || call == "create PodIPBlock" {
			b.r.Pools.Delete("blues")
		}
	}
	b.step()
	b.lists(fixtures.Prefixes("10.0.0.0/30"), nil)
}

// Such a block waits for the pod with a status that still names it, without delaying the rest of
// its node.
func TestOrphanedBlockHoldsNothingUp(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"),
		inService("10.0.0.0/30"), inService("10.0.0.4/30"), blueBlock("10.8.0.0/30"))
	b.r.Pods.Set(podOn("x", "10.8.0.1"), fixtures.Noon())
	b.settle()
	b.settleAt(time.Hour)
	b.lists(fixtures.Prefixes("10.0.0.0/30"), nil)
	if b.has("10.0.0.4/30") || !b.has("10.8.0.0/30") {
		t.Errorf("blocks are %+v", b.Blocks())
	}
}

// Its pods do not count as demand of the default pool: the agent could not use another block
// for them and would return each one.
func TestPodsOfAnOrphanedBlockAreNoDemand(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"),
		inService("10.0.0.0/30"), blueBlock("10.8.0.0/28"))
	for i := range 5 {
		b.r.Pods.Set(podOn(fmt.Sprintf("x%d", i), fmt.Sprintf("10.8.0.%d", i+1)), fixtures.Noon())
	}
	b.settle()
	b.lists(fixtures.Prefixes("10.0.0.0/30"), nil)
	if blocks := b.Blocks(); len(blocks) != 2 {
		t.Errorf("blocks are %+v", blocks)
	}
}

// If the operator does not remember the CiliumNode, it recreates it without such a block.
func TestOrphanedBlockOfAForgottenCiliumNode(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), blueBlock("10.8.0.0/28"))
	b.r.Pods.Set(podOn("x", "10.8.0.1"), fixtures.Noon())
	b.settle()
	b.lists(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30"), nil)
	if !b.has("10.8.0.0/28") {
		t.Errorf("blocks are %+v", b.Blocks())
	}
}

// Only the plan of a block's own Cilium pool reports why its drain has not begun. The plans of
// other pools would keep clearing it.
func TestHeldInOneCiliumPool(t *testing.T) {
	blue := fixtures.BluePool("10.8.0.0/28")
	blue.Spec.IPv4.CIDRs[0].AllocationPolicy, blue.Spec.Maintenance = v1alpha1.AllocationDrain, fixtures.Nightly()
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), blue, fixtures.Listing("10.8.0.0/30"),
		inService("10.0.0.0/30"), blueBlock("10.8.0.0/30"))
	b.agentWrites(asksBlue)
	b.settle()
	want := []string{"10.0.0.0/30 InService", "10.8.0.0/30 InService held"}
	b.hasPhases("", want...)
	b.settled()
}

// If a PodIPPool is recreated for another Cilium pool, its listed blocks stay under the old
// name, where the agent has them.
func TestListedBlockWhosePoolServesAnother(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/28"), fixtures.Listing("10.8.0.0/30"),
		inService("10.0.0.0/30"), blueBlock("10.8.0.0/30"))
	green := fixtures.BluePool("10.8.0.0/28")
	green.UID, green.Spec.CiliumPoolName = "made-again", "green"
	b.r.Pools.Delete(green.Name)
	b.r.Pools.Set(green)
	b.settled()
	b.lists(fixtures.Prefixes("10.0.0.0/30"), fixtures.Prefixes("10.8.0.0/30"))
}

// A pod counts for the Cilium pool it requests, itself or through its namespace, before its
// agent knows of it.
func TestPodsRequestACiliumPool(t *testing.T) {
	blue, web := map[string]string{"ipam.cilium.io/ip-pool": "blue"}, map[string]string{"app": "web"}
	tests := map[string]struct {
		pod, namespace map[string]string
		picks          []*ciliumpool.View
		want           int // number of additional blocks of blue
	}{
		"no request":                  {},
		"the pod":                     {pod: blue, want: 2},
		"the namespace":               {namespace: blue, want: 2},
		"the pod goes first":          {pod: map[string]string{"ipam.cilium.io/ip-pool": "default"}, namespace: blue},
		"for the family":              {pod: map[string]string{"ipam.cilium.io/ipv4-pool": "blue"}, want: 2},
		"for the other family":        {pod: map[string]string{"ipam.cilium.io/ipv6-pool": "blue"}},
		"the family's own goes first": {pod: map[string]string{"ipam.cilium.io/ip-pool": "green", "ipam.cilium.io/ipv4-pool": "blue"}, want: 2},
		"a pool that is not served":   {pod: map[string]string{"ipam.cilium.io/ip-pool": "green"}},
		"by labels":                   {picks: []*ciliumpool.View{fixtures.Picking("blue", web, nil)}, want: 2},
		"by labels of two pools":      {picks: []*ciliumpool.View{fixtures.Picking("blue", web, nil), fixtures.Picking("green", web, nil)}},
		"by labels of the default":    {picks: []*ciliumpool.View{fixtures.Picking("default", web, nil)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := blueBed(t)
			b.r.Pods.SetNamespace("default", state.PoolRequestOf(&metav1.ObjectMeta{Annotations: test.namespace}))
			b.r.CiliumPools = state.NewCiliumPools()
			for _, pool := range test.picks {
				b.r.CiliumPools.Set(pool)
			}
			for _, pod := range []string{"a", "b", "c"} {
				obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod, UID: types.UID(pod), Annotations: test.pod, Labels: web}}
				obj.Spec.NodeName = "n"
				b.r.Pods.Set(state.ReadPodWithRequest(obj), fixtures.Noon())
			}
			b.step()
			if got := len(b.listedFor("blue")); got != test.want {
				t.Errorf("%d blocks of blue, want %d", got, test.want)
			}
		})
	}
}

// Blocks that the agent returns cool down and are released like any other block. While it is listed
// under any Cilium pool, it stays.
func TestCiliumPoolBlocksReturned(t *testing.T) {
	b := blueBed(t)
	b.agentWrites(asksBlue)
	b.settle()
	b.agentWrites(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":2}}],"allocated":[{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`)
	b.settle()
	if !b.has("10.8.0.0/30") || !b.has("10.8.0.4/30") {
		t.Fatal("they cooled down too briefly")
	}
	b.at(time.Hour)
	b.Lag()
	b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"blue","cidrs":["10.8.0.0/30"]},{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`)
	b.step()
	if !b.has("10.8.0.0/30") {
		t.Error("the block was released though it is listed")
	}
}

// A recreated CiliumNode lists the blocks of each Cilium pool again.
func TestCiliumPoolsOfAForgottenCiliumNode(t *testing.T) {
	blue := crd.NewBlock(fixtures.Prefix("10.8.0.0/30"), "blues", "n", "node-uid")
	blue.UID = "uid-blue"
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), fixtures.BluePool("10.8.0.0/28"),
		inService("10.0.0.0/30"), inService("10.0.0.4/30"), blue)
	b.settle()
	b.lists(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30"), fixtures.Prefixes("10.8.0.0/30"))
	b.settled()
}

// Of the blocks removed by force, a PodIPPool recreates only those listed for the Cilium pool
// it serves.
func TestForciblyRemovedBlockOfACiliumPool(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30", "10.8.0.8/30"))
	b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"blue","cidrs":["10.0.0.8/30","10.8.0.0/30"]},{"pool":"default","cidrs":["10.0.0.0/30","10.8.0.8/30"]}]}}}}`)
	b.settle()
	var got []string
	for _, k := range b.Blocks() {
		got = append(got, k.Name+" "+k.Pool)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"10.0.0.0-30 p", "10.8.0.0-30 blues"}, got); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}

// Release entries, which fence, count for the Cilium pool of the block they are about.
func TestReleaseOfCiliumPools(t *testing.T) {
	b := blueBed(t)
	b.agentWrites(asksBlue)
	b.settle()
	b.agentWrites(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":2}}],"allocated":[{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`)
	b.settle()
	b.settleAt(time.Hour)
	if b.has("10.8.0.0/30") || b.has("10.8.0.4/30") || len(b.CiliumNode().Release) > 0 {
		t.Errorf("blocks %+v, entries %v: want those of blue gone, and nothing left over", b.Blocks(), b.CiliumNode().Release)
	}
}

// In other modes a PodIPPool that names a Cilium pool serves no node.
func TestCiliumPoolInOtherModes(t *testing.T) {
	for _, mode := range []ciliumnode.Mode{ciliumnode.CRD, ciliumnode.Kubernetes} {
		t.Run(mode.String(), func(t *testing.T) {
			b := newBedIn(t, mode, fixtures.Node(), fixtures.BluePool("10.8.0.0/28"))
			b.settled()
		})
	}
}
