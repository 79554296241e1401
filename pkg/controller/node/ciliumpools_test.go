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
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// blueBed is node n whose agent has what it asks for of the default pool, beside a
// pool that serves Cilium's pool blue.
func blueBed(t *testing.T) *bed {
	return poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/28"),
		fixtures.Pooled(2, "10.0.0.0/30"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
}

// blueBlock is a block of bluePool on node n.
func blueBlock(cidr string) *v1alpha1.PodIPBlock {
	b := fixtures.BlockObject(cidr, ipalloc.InService)
	b.Spec.PoolName = "blues"
	return b
}

// toldFor are the CIDRs that the agent of node n was told for a pool of Cilium's.
func (b *bed) toldFor(ciliumPool string) []netip.Prefix {
	b.T.Helper()
	return b.CiliumNode().Of(ciliumPool).PodCIDRs
}

func (b *bed) tells(def, blue []netip.Prefix) {
	b.T.Helper()
	for pool, want := range map[string][]netip.Prefix{"": def, "blue": blue} {
		if diff := cmp.Diff(want, b.toldFor(pool), fixtures.CompareNetip(), cmpopts.EquateEmpty()); diff != "" {
			b.T.Errorf("told for pool %q (-want +got):\n%s", pool, diff)
		}
	}
}

const asksBlue = `{"spec":{"ipam":{"pools":{"requested":[{"pool":"blue","needed":{"ipv4-addrs":3}},{"pool":"default","needed":{"ipv4-addrs":2}}]}}}}`

func TestNobodyAsksForACiliumPool(t *testing.T) {
	b := blueBed(t)
	b.rests()
	b.tells(fixtures.Prefixes("10.0.0.0/30"), nil)
}

// What an agent asks for of a pool comes from the PodIPPools that serve it, and
// goes under its name; the default pool has its own needs, and its own blocks.
func TestAgentAsksForACiliumPool(t *testing.T) {
	b := blueBed(t)
	b.agentWrites(asksBlue)
	b.settle()
	b.tells(fixtures.Prefixes("10.0.0.0/30"), fixtures.Prefixes("10.8.0.0/30", "10.8.0.4/30"))
	for _, k := range b.Blocks() {
		if blue := k.Pool == "blues"; blue != strings.HasPrefix(k.Name, "10.8.") {
			t.Errorf("block %s is of pool %s", k.Name, k.Pool)
		}
	}
	b.rests()
}

func TestFullCiliumPoolTakesFromNoOther(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/30"),
		fixtures.Pooled(2, "10.0.0.0/30"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b.agentWrites(asksBlue)
	b.settle()
	b.tells(fixtures.Prefixes("10.0.0.0/30"), fixtures.Prefixes("10.8.0.0/30"))
	if !b.r.Awaiting.Has("n") {
		t.Error("the node does not wait for addresses")
	}
}

// A PodIPPool that goes while a block of it is claimed leaves nobody to say which
// pool of Cilium's the block is for: it is told under none, the default one neither.
func TestClaimedBlockWhosePoolIsGone(t *testing.T) {
	b := blueBed(t)
	b.agentWrites(asksBlue)
	b.Before = func(call string) {
		if call == "patch CiliumNode" || call == "create PodIPBlock" {
			b.r.Pools.Delete("blues")
		}
	}
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	b.tells(fixtures.Prefixes("10.0.0.0/30"), nil)
}

// Such a block that a pod's status still names waits for the pod, and holds up nothing
// else on its node.
func TestBlockOfNobodyHoldsNothingUp(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.InService), blueBlock("10.8.0.0/30"))
	b.r.Pods.Set(podOn("x", "10.8.0.1"), fixtures.Noon())
	b.settle()
	b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
	b.settle()
	b.tells(fixtures.Prefixes("10.0.0.0/30"), nil)
	if b.has("10.0.0.4/30") || !b.has("10.8.0.0/30") {
		t.Errorf("blocks are %+v", b.Blocks())
	}
}

// Its pods are no demand of the default pool: for them the agent has no use for another
// block, and would give it back each time.
func TestPodsOfNobodysBlockAreNoDemand(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), blueBlock("10.8.0.0/28"))
	for i := range 5 {
		b.r.Pods.Set(podOn(fmt.Sprintf("x%d", i), fmt.Sprintf("10.8.0.%d", i+1)), fixtures.Noon())
	}
	b.settle()
	b.tells(fixtures.Prefixes("10.0.0.0/30"), nil)
	if blocks := b.Blocks(); len(blocks) != 2 {
		t.Errorf("blocks are %+v", blocks)
	}
}

// A node whose CiliumNode nobody remembers gets one without it.
func TestNobodysBlockOfAForgottenCiliumNode(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), blueBlock("10.8.0.0/28"))
	b.r.Pods.Set(podOn("x", "10.8.0.1"), fixtures.Noon())
	b.settle()
	b.tells(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30"), nil)
	if !b.has("10.8.0.0/28") {
		t.Errorf("blocks are %+v", b.Blocks())
	}
}

// Why a block does not begin to leave is told by the plan of its own pool of Cilium's
// alone: those of others would take it back, again and again.
func TestHeldInOneCiliumPool(t *testing.T) {
	blue := fixtures.BluePool("10.8.0.0/28")
	blue.Spec.IPv4.CIDRs[0].AllocationPolicy, blue.Spec.Maintenance = v1alpha1.AllocationDrain, fixtures.Nightly()
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), blue, fixtures.Listing("10.8.0.0/30"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), blueBlock("10.8.0.0/30"))
	b.agentWrites(asksBlue)
	b.settle()
	want := []string{"10.0.0.0/30 InService", "10.8.0.0/30 InService held"}
	if diff := cmp.Diff(want, b.phases()); diff != "" {
		t.Error(diff)
	}
	b.rests()
}

// A PodIPPool that is made again for another pool of Cilium's does not take along what
// is told: the agent has it under its old name.
func TestListedBlockWhosePoolServesAnother(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/28"), fixtures.Listing("10.8.0.0/30"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), blueBlock("10.8.0.0/30"))
	green := fixtures.BluePool("10.8.0.0/28")
	green.UID, green.Spec.CiliumPoolName = "made-again", "green"
	b.r.Pools.Delete(green.Name)
	b.r.Pools.Set(green)
	b.rests()
	b.tells(fixtures.Prefixes("10.0.0.0/30"), fixtures.Prefixes("10.8.0.0/30"))
}

// A pod counts for the pool that it asks for, itself or by its namespace, before
// its agent has heard of it.
func TestPodsAskForACiliumPool(t *testing.T) {
	blue, web := map[string]string{"ipam.cilium.io/ip-pool": "blue"}, map[string]string{"app": "web"}
	tests := map[string]struct {
		pod, namespace map[string]string
		picks          []*ciliumpool.View
		want           int // how many more blocks of blue
	}{
		"nobody asks":                 {},
		"the pod":                     {pod: blue, want: 2},
		"the namespace":               {namespace: blue, want: 2},
		"the pod goes first":          {pod: map[string]string{"ipam.cilium.io/ip-pool": "default"}, namespace: blue},
		"for the family":              {pod: map[string]string{"ipam.cilium.io/ipv4-pool": "blue"}, want: 2},
		"for the other family":        {pod: map[string]string{"ipam.cilium.io/ipv6-pool": "blue"}},
		"the family's own goes first": {pod: map[string]string{"ipam.cilium.io/ip-pool": "green", "ipam.cilium.io/ipv4-pool": "blue"}, want: 2},
		"a pool that nobody serves":   {pod: map[string]string{"ipam.cilium.io/ip-pool": "green"}},
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
			if _, err := b.reconcile(); err != nil {
				t.Fatal(err)
			}
			if got := len(b.toldFor("blue")); got != test.want {
				t.Errorf("%d blocks of blue, want %d", got, test.want)
			}
		})
	}
}

// What the agent gives back rests and goes, like any other block, and while it is
// listed, for whichever pool, it stays.
func TestCiliumPoolGivenBack(t *testing.T) {
	b := blueBed(t)
	b.agentWrites(asksBlue)
	b.settle()
	b.agentWrites(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":2}}],"allocated":[{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`)
	b.settle()
	if !b.has("10.8.0.0/30") || !b.has("10.8.0.4/30") {
		t.Fatal("they rested too short")
	}
	b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
	b.Lag()
	b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"blue","cidrs":["10.8.0.0/30"]},{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`)
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if !b.has("10.8.0.0/30") {
		t.Error("the block was given up though it is listed")
	}
}

// A CiliumNode that is made anew is told the blocks of each pool again.
func TestCiliumPoolsOfAForgottenCiliumNode(t *testing.T) {
	blue := crd.NewBlock(fixtures.Prefix("10.8.0.0/30"), "blues", "n", "node-uid")
	blue.UID = "uid-blue"
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), fixtures.BluePool("10.8.0.0/28"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.InService), blue)
	b.settle()
	b.tells(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30"), fixtures.Prefixes("10.8.0.0/30"))
	b.rests()
}

// Of what was torn away, a pool makes only those again that are listed for the
// pool of Cilium's that it serves.
func TestTornAwayBlockOfACiliumPool(t *testing.T) {
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

// Release entries, which fence, are seen by the pool whose block they are of.
func TestReleaseOfCiliumPools(t *testing.T) {
	b := blueBed(t)
	b.agentWrites(asksBlue)
	b.settle()
	b.agentWrites(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":2}}],"allocated":[{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`)
	b.settle()
	b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
	b.settle()
	if b.has("10.8.0.0/30") || b.has("10.8.0.4/30") || len(b.CiliumNode().Release) > 0 {
		t.Errorf("blocks %+v, entries %v: want those of blue gone, and nothing left over", b.Blocks(), b.CiliumNode().Release)
	}
}

// In other modes a pool that names one of Cilium's serves nobody.
func TestCiliumPoolInOtherModes(t *testing.T) {
	for _, mode := range []ciliumnode.Mode{ciliumnode.CRD, ciliumnode.Kubernetes} {
		t.Run(mode.String(), func(t *testing.T) {
			b := newBedIn(t, mode, fixtures.Node(), fixtures.BluePool("10.8.0.0/28"))
			b.rests()
		})
	}
}
