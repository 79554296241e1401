package node

import (
	"errors"
	"slices"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// lastSeen is node n's CiliumNode before it was deleted: owned by the Node with that UID, with
// addresses of two blocks and a foreign one.
func lastSeen(uid types.UID) *ciliumv2.CiliumNode {
	return owned(publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30", "10.0.0.4/30"), "10.0.0.1", "10.0.0.2", "10.0.0.5", "172.16.0.1"), uid)
}

func owned(cn *ciliumv2.CiliumNode, uid types.UID) *ciliumv2.CiliumNode {
	cn.ResourceVersion = "1"
	cn.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: uid}}
	return cn
}

// remembers makes the operator remember a CiliumNode that was deleted.
func (b *bed) remembers(cn *ciliumv2.CiliumNode) {
	b.r.Cluster.Ledger.RemoveCiliumNode(b.Mode.View(cn))
}

// removeByForce removes a block's object, as another process than this one sees it.
func (b *bed) removeByForce(name string) {
	b.T.Helper()
	b.Blind = true
	defer func() { b.Blind = false }()
	obj := b.object(name)
	obj.Finalizers = nil
	b.must(errors.Join(b.API.Update(b.T.Context(), obj), b.API.Delete(b.T.Context(), obj)))
}

// A deleted CiliumNode is restored with the addresses of the blocks that the Node still holds, read
// live, and with foreign ones that are no other node's by now. Its agent is asked to report.
func TestCiliumNodeIsRestored(t *testing.T) {
	first, second, anothers := inService("10.0.0.0/30"), inService("10.0.0.4/30"), crd.NewBlock(fixtures.Prefix("172.16.0.0/30"), "q", "m", "")
	restored := func(want string, before func(*bed), objects ...client.Object) scenario {
		given := func(b *bed) {
			b.remembers(lastSeen("node-uid"))
			if before != nil {
				before(b)
			}
		}
		return scenario{objects: append(objects, first), given: given, do: (*bed).ensureCiliumNode, want: "blocks " + want + "; release 233.252.0.1=marked-for-release"}
	}
	runScenarios(t, map[string]scenario{
		"as it was seen":                  restored("10.0.0.0/30 10.0.0.4/30; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 172.16.0.1", nil, second),
		"with a block that drains":        restored("10.0.0.0/30 10.0.0.4/30 Draining; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 172.16.0.1", nil, fixtures.BlockObject("10.0.0.4/30", ipalloc.Draining)),
		"without a block that cools down": restored("10.0.0.0/30 10.0.0.4/30 CoolingDown; lists 10.0.0.0/30; pool 10.0.0.1 10.0.0.2 172.16.0.1", nil, coolingDown("10.0.0.4/30")),
		"without a block whose object goes": restored("10.0.0.0/30 10.0.0.8/30; lists 10.0.0.0/30; pool 10.0.0.1 10.0.0.2 172.16.0.1", func(b *bed) {
			b.once("get PodIPBlock", func() { b.removeByForce("10.0.0.4-30") })
		}, second, inService("10.0.0.8/30")),
		"without blocks that another node holds now": restored("10.0.0.0/30 10.0.0.4/30 172.16.0.0/30; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5", func(b *bed) {
			b.must(b.API.Create(b.T.Context(), anothers.DeepCopy()))
		}, second),
		"without another's that the watch lacks": restored("10.0.0.0/30 10.0.0.4/30 172.16.0.0/30; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5", func(b *bed) {
			b.Blind = true
			b.must(b.API.Create(b.T.Context(), anothers.DeepCopy()))
		}, second),
		"without a later block that overlaps": restored("10.0.0.0/29 10.0.0.0/30 10.0.0.4/30; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 172.16.0.1", nil, second, inService("10.0.0.0/29")),
		"listed, in multi-pool mode": {
			want: "blocks 10.0.0.0/30 10.0.0.4/30 CoolingDown; lists 10.0.0.0/30 172.16.0.0/24",
			mode: ciliumnode.MultiPool, objects: []client.Object{first, coolingDown("10.0.0.4/30")},
			given: func(b *bed) {
				last := owned(fixtures.Pooled(9, "10.0.0.0/30", "10.0.0.4/30", "172.16.0.0/24"), "node-uid")
				last.Spec.IPAM.Pools.Allocated = slices.Insert(last.Spec.IPAM.Pools.Allocated, 0, ipamtypes.IPAMPoolAllocation{Pool: "blue"})
				b.remembers(last)
			},
		},
		"listed, without blocks that another node holds now": {
			want: "blocks 10.0.0.0/30; lists 10.0.0.0/30",
			mode: ciliumnode.MultiPool, objects: []client.Object{fixtures.BluePool("10.8.0.0/28"), first}, do: (*bed).ensureCiliumNode,
			given: func(b *bed) {
				last := owned(fixtures.Listing("10.8.0.0/30"), "node-uid")
				last.Spec.IPAM.Pools.Allocated[1].CIDRs = append(last.Spec.IPAM.Pools.Allocated[1].CIDRs, fixtures.PodCIDR("10.0.0.4/30"))
				b.remembers(last)
				b.r.Cluster.Ledger.Upsert(fixtures.Block("10.0.0.4/30", "p", "m", 1))
				b.r.Cluster.Ledger.Upsert(fixtures.Block("10.8.0.0/30", "blues", "m", 1))
			},
		},
		// The agent may still have every block the node holds, so all are listed, at any demand.
		"forgotten, in multi-pool mode": {
			want: "blocks 10.0.0.0/30 10.0.0.12/30 CoolingDown 10.0.0.4/30 10.0.0.8/30; lists 10.0.0.0/30 10.0.0.4/30 10.0.0.8/30",
			mode: ciliumnode.MultiPool, settles: true,
			objects: []client.Object{fixtures.PodIPPool("p", 1, "10.0.0.0/27"), first, second, inService("10.0.0.8/30"), coolingDown("10.0.0.12/30")},
		},
		"not for a Node of another UID": {given: func(b *bed) { b.remembers(lastSeen("old-uid")) }, want: "blocks 10.0.0.0/30 10.0.0.4/30; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 10.0.0.6"},
		// If a block was removed by force with its CiliumNode, it is claimed again first.
		"after its blocks": {
			objects: []client.Object{first},
			given: func(b *bed) {
				b.remembers(lastSeen("node-uid"))
				b.once("create CiliumNode", func() { b.block("10.0.0.4/30") })
			},
			want: "blocks 10.0.0.0/30 10.0.0.4/30; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 10.0.0.6 172.16.0.1; release 233.252.0.1=marked-for-release",
		},
	})
}

// The restoration of a CiliumNode is reported once, and its agent is asked to report, even if the
// agent writes to it before its addresses are published and another IPAM once served the node. The
// operator also reports that it recreated a CiliumNode that it does not remember. A Node that joins
// again had none, nor had a Node that people made a block for before it joined.
func TestRestoreIsReported(t *testing.T) {
	adopted := using(owned(publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"), "node-uid"), "10.0.0.1")
	another := adopted.DeepCopy()
	another.Spec.IPAM.Pools.Allocated = fixtures.Pooled(0, "10.0.0.8/30").Spec.IPAM.Pools.Allocated
	rejoins := inService("10.0.0.0/30")
	crd.SetBlockPhase(rejoins, ipalloc.CoolingDown, expand.NodeGone, "", fixtures.Noon())
	const restored, remade = event.ReasonCiliumNodeRestored, event.ReasonCiliumNodeRemade
	for name, test := range map[string]struct {
		last        *ciliumv2.CiliumNode
		block       *v1alpha1.PodIPBlock
		agent, race bool
		reports     string // "": nothing
		asks        int
	}{
		"restored":                                {last: lastSeen("node-uid"), reports: restored, asks: 1},
		"restored, its agent writes first":        {last: lastSeen("node-uid"), race: true, reports: restored},
		"its adopted block is left":               {last: adopted, block: adoptedBlock("10.0.0.0/30"), agent: true, race: true, reports: restored, asks: 1},
		"another CIDR is named that it was given": {last: another, agent: true, race: true, reports: restored, asks: 1},
		"recreated under its agent":               {agent: true, reports: remade, asks: 1},
		"the Node joins again":                    {block: rejoins, agent: true, asks: 1},
		"the block came before":                   {asks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			if test.block == nil {
				test.block = inService("10.0.0.0/30")
			}
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), test.block)
			if test.last != nil {
				b.remembers(test.last)
			}
			if test.agent {
				b.settleAgent()
			}
			if test.race {
				b.once("patch CiliumNode", func() { b.agentWrites(`{"spec":{"bootid":"b"}}`) })
			}
			b.settle()
			reason, want := test.reports, 1
			if reason == "" {
				reason, want = remade, 0
			}
			if v, got := b.CiliumNode(), b.EventsOf(reason); len(got) != want || len(v.Release) != test.asks || !slices.Contains(b.published(), "10.0.0.1") {
				t.Errorf("reports %q, release entries %v, published %v; want %d of %s", got, v.Release, b.published(), want, reason)
			}
		})
	}
}

// If a Node opts out, its blocks cool down once its CiliumNode, read live, is gone, and none is
// created for it. A block object that was removed by force is recreated as long as the CiliumNode,
// read live, lists the block for the Cilium pool that the PodIPPool serves.
func TestReconcileRepairs(t *testing.T) {
	optedOut := fixtures.Node()
	optedOut.Labels = map[string]string{v1alpha1.OptOutLabel: "true"}
	removed := publishing(fixtures.CiliumNode("n", "", "10.0.0.4/30", "192.168.0.0/24"), "10.0.0.5")
	runScenarios(t, map[string]scenario{
		"opted out": {objects: []client.Object{optedOut, inService("10.0.0.0/30")}, settles: true, want: "blocks 10.0.0.0/30 CoolingDown; no CiliumNode"},
		"opted out, its CiliumNode not shown": {
			want:    "blocks 10.0.0.0/30; lists 10.0.0.0/30; pool 10.0.0.1",
			objects: []client.Object{optedOut, inService("10.0.0.0/30"), publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1")},
			given: func(b *bed) {
				b.r.Cluster.Ledger.RemoveCiliumNode(b.r.Cluster.Ledger.MissingCiliumNodes(map[types.UID]bool{"twin-uid": true}, fakeapi.Latest)[0])
				b.r.Cluster.Ledger.ForgetCiliumNode("n")
				b.Lags = true
			},
		},
		"removed by force": {objects: []client.Object{removed}, settles: true, want: "blocks 10.0.0.0/30 10.0.0.4/30; lists 10.0.0.4/30 192.168.0.0/24 10.0.0.0/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 10.0.0.6"},
		"removed by force, and listed no more": {objects: []client.Object{removed}, given: func(b *bed) {
			b.Lag()
			b.agentWrites(`{"spec":{"ipam":{"podCIDRs":[],"pool":null}}}`)
		}},
		"removed by force, of two Cilium pools": {
			want: "blocks 10.0.0.0/30 10.8.0.0/30; lists 10.0.0.0/30 10.8.0.8/30; lists blue 10.0.0.8/30 10.8.0.0/30",
			mode: ciliumnode.MultiPool, objects: []client.Object{fixtures.BluePool("10.8.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30", "10.8.0.8/30")}, settles: true,
			given: func(b *bed) {
				b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"blue","cidrs":["10.0.0.8/30","10.8.0.0/30"]},{"pool":"default","cidrs":["10.0.0.0/30","10.8.0.8/30"]}]}}}}`)
			},
		},
	})
}

// While the watch lags behind the deletion of a Node, the operator does not restore its
// CiliumNode: the garbage collector would delete it again, and so on forever.
func TestCiliumNodeOfGoneNodeIsNotRestored(t *testing.T) {
	b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), inService("10.0.0.0/30"))
	b.r.Cluster.Ledger.RemoveCiliumNode(ciliumnode.NewView(lastSeen("node-uid")))
	o := b.observe()
	o.Node = fixtures.Node() // as a cache has it that lags
	if _, err := b.r.recreate(t.Context(), o, b.r.Cluster.Ledger.LastCiliumNode("n"), &result{}); !errors.Is(err, errCacheBehind) || b.CiliumNode() != nil {
		t.Errorf("%v, CiliumNode %v", err, b.CiliumNode())
	}
}

// The operator's memory of a CiliumNode's marks and answers does not apply to its successor,
// whoever created that.
func TestMemoryIsOfOneCiliumNode(t *testing.T) {
	b := newBed(t)
	for _, f := range ipalloc.Families() {
		b.memoryOf("first", f).IdleSince = []time.Time{fixtures.Noon()}
	}
	if got := b.memoryOf("first", ipalloc.IPv4); len(got.IdleSince) != 1 {
		t.Error("it remembers nothing")
	}
	for _, step := range []struct {
		of types.UID
		f  ipalloc.Family
	}{{"second", ipalloc.IPv4}, {"second", ipalloc.IPv6}, {"first", ipalloc.IPv6}} {
		if got := b.memoryOf(step.of, step.f); len(got.IdleSince) > 0 {
			t.Errorf("remembers %v as that of %s", got.IdleSince, step.of)
		}
	}
}

// Nor does it after a pause, as the operator is blind during it.
func TestMemoryEndsWithAPause(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"),
		inService("10.0.0.0/30"))
	b.r.Cluster.Paused = true
	o := b.observe()
	b.memoryOf(o.uid(), ipalloc.IPv4).IdleSince = []time.Time{fixtures.Noon()}
	b.r.decide(t.Context(), o)
	if got := b.memoryOf(o.uid(), ipalloc.IPv4); len(got.IdleSince) > 0 {
		t.Errorf("remembers %v", got.IdleSince)
	}
}

// An agent that runs steadily and has not reported addresses in use is asked to, once.
func TestSilentAgentIsAsked(t *testing.T) {
	for name, test := range map[string]struct {
		paused bool
		since  time.Duration
		want   int
	}{
		"settled": {since: -time.Hour, want: 1}, "not settled": {}, "paused": {paused: true, since: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), full(), inService("10.0.0.0/29"))
			b.r.Cluster.Paused = test.paused
			b.agentSince(test.since)
			asked := 0
			b.Before = func(call string) {
				if call == "patch CiliumNode status" {
					asked++
				}
			}
			b.settle()
			if got := len(b.CiliumNode().Release); asked != test.want || got != test.want {
				t.Errorf("asked %d times, %d entries; want %d", asked, got, test.want)
			}
		})
	}
}
