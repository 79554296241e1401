package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
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
func (b *bed) remembers(cn *ciliumv2.CiliumNode) { b.r.Ledger.RemoveCiliumNode(b.Mode.View(cn)) }

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
		"as it was seen":                  restored("10.0.0.0/30 InService 10.0.0.4/30 InService; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 172.16.0.1", nil, second),
		"with a block that drains":        restored("10.0.0.0/30 InService 10.0.0.4/30 Draining; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 172.16.0.1", nil, fixtures.BlockObject("10.0.0.4/30", ipalloc.Draining)),
		"without a block that cools down": restored("10.0.0.0/30 InService 10.0.0.4/30 CoolingDown; lists 10.0.0.0/30; pool 10.0.0.1 10.0.0.2 172.16.0.1", nil, coolingDown("10.0.0.4/30")),
		"without a block whose object goes": restored("10.0.0.0/30 InService 10.0.0.8/30 InService; lists 10.0.0.0/30; pool 10.0.0.1 10.0.0.2 172.16.0.1", func(b *bed) {
			b.once("get PodIPBlock", func() { b.removeByForce("10.0.0.4-30") })
		}, second, inService("10.0.0.8/30")),
		"without what is another's now": restored("10.0.0.0/30 InService 10.0.0.4/30 InService 172.16.0.0/30 InService; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5", func(b *bed) {
			b.must(b.API.Create(b.T.Context(), anothers.DeepCopy()))
		}, second),
		"without another's that the watch lacks": restored("10.0.0.0/30 InService 10.0.0.4/30 InService 172.16.0.0/30 InService; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5", func(b *bed) {
			b.Blind = true
			b.must(b.API.Create(b.T.Context(), anothers.DeepCopy()))
		}, second),
		"without a later block that overlaps": restored("10.0.0.0/29 InService 10.0.0.0/30 InService 10.0.0.4/30 InService; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 172.16.0.1", nil, second, inService("10.0.0.0/29")),
		"listed, in multi-pool mode": {
			want: "blocks 10.0.0.0/30 InService 10.0.0.4/30 CoolingDown; lists 10.0.0.0/30 172.16.0.0/24",
			mode: ciliumnode.MultiPool, objects: []client.Object{first, coolingDown("10.0.0.4/30")},
			given: func(b *bed) {
				last := owned(fixtures.Pooled(9, "10.0.0.0/30", "10.0.0.4/30", "172.16.0.0/24"), "node-uid")
				last.Spec.IPAM.Pools.Allocated = slices.Insert(last.Spec.IPAM.Pools.Allocated, 0, ipamtypes.IPAMPoolAllocation{Pool: "blue"})
				b.remembers(last)
			},
		},
		"listed, without what is another's now": {
			want: "blocks 10.0.0.0/30 InService; lists 10.0.0.0/30",
			mode: ciliumnode.MultiPool, objects: []client.Object{fixtures.BluePool("10.8.0.0/28"), first}, do: (*bed).ensureCiliumNode,
			given: func(b *bed) {
				last := owned(fixtures.Listing("10.8.0.0/30"), "node-uid")
				last.Spec.IPAM.Pools.Allocated[1].CIDRs = append(last.Spec.IPAM.Pools.Allocated[1].CIDRs, fixtures.PodCIDR("10.0.0.4/30"))
				b.remembers(last)
				b.r.Ledger.Upsert(fixtures.Block("10.0.0.4/30", "p", "m", 1))
				b.r.Ledger.Upsert(fixtures.Block("10.8.0.0/30", "blues", "m", 1))
			},
		},
		// The agent may still have every block the node holds, so all are listed, at any demand.
		"forgotten, in multi-pool mode": {
			want: "blocks 10.0.0.0/30 InService 10.0.0.12/30 CoolingDown 10.0.0.4/30 InService 10.0.0.8/30 InService; lists 10.0.0.0/30 10.0.0.4/30 10.0.0.8/30",
			mode: ciliumnode.MultiPool, settles: true,
			objects: []client.Object{fixtures.PodIPPool("p", 1, "10.0.0.0/27"), first, second, inService("10.0.0.8/30"), coolingDown("10.0.0.12/30")},
		},
		"not for a Node of another UID": {given: func(b *bed) { b.remembers(lastSeen("old-uid")) }, want: "blocks 10.0.0.0/30 InService 10.0.0.4/30 InService; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 10.0.0.6"},
		// If a block was removed by force with its CiliumNode, it is claimed again first.
		"after its blocks": {
			objects: []client.Object{first},
			given: func(b *bed) {
				b.remembers(lastSeen("node-uid"))
				b.once("create CiliumNode", func() { b.block("10.0.0.4/30") })
			},
			want: "blocks 10.0.0.0/30 InService 10.0.0.4/30 InService; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 10.0.0.6 172.16.0.1; release 233.252.0.1=marked-for-release",
		},
	})
}

// agentWritesFirst makes the agent of node n write just before the first patch of its
// CiliumNode, which then conflicts. It fails the test if no patch follows.
func (b *bed) agentWritesFirst() {
	wrote := false
	b.Before = func(call string) {
		if !wrote && call == "patch CiliumNode" {
			wrote = true
			b.agentWrites(`{"spec":{"bootid":"b"}}`)
		}
	}
	b.T.Cleanup(func() {
		if !wrote {
			b.T.Error("no write came in between: this has tested nothing")
		}
	})
}

// The restoration of a CiliumNode is reported once, even if its agent writes to it before its
// addresses are published.
func TestRestoreIsReportedOnce(t *testing.T) {
	for _, race := range []bool{false, true} {
		t.Run(fmt.Sprintf("race %t", race), func(t *testing.T) {
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), inService("10.0.0.0/30"))
			b.r.Ledger.RemoveCiliumNode(ciliumnode.NewView(lastSeen("node-uid")))
			if race {
				b.agentWritesFirst()
			}
			b.settle()
			if n := len(b.EventsOf(event.ReasonCiliumNodeRestored)); n != 1 {
				t.Errorf("reported %d times, want once", n)
			}
		})
	}
}

// An agent that has reported before is asked to report again, even if it writes to the
// CiliumNode in between and another IPAM once served the node.
func TestRestoreOfAnAdoptedNodeIsReported(t *testing.T) {
	for name, spare := range map[string]bool{"its adopted block is left": true, "another CIDR is named that it was given": false} {
		t.Run(name, func(t *testing.T) {
			block := inService("10.0.0.0/30")
			last := publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2")
			if spare {
				block = adoptedBlock("10.0.0.0/30")
			} else {
				last.Spec.IPAM.Pools.Allocated = fixtures.Pooled(0, "10.0.0.8/30").Spec.IPAM.Pools.Allocated
			}
			last.ResourceVersion, last.Status.IPAM.Used = "1", fixtures.AllocationMap("10.0.0.1")
			last.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "node-uid"}}
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), block)
			b.r.Ledger.RemoveCiliumNode(ciliumnode.NewView(last))
			b.settleAgent()
			b.agentWritesFirst()
			b.settle()
			if v := b.CiliumNode(); len(v.Release) != 1 || !slices.Contains(b.published(), "10.0.0.1") {
				t.Errorf("published %v, release entries %v; want what was, and one that asks", b.published(), v.Release)
			}
		})
	}
}

// The operator reports that it recreated a CiliumNode if it does not remember the deleted one. A
// Node that joins again had none, nor had a Node that people made a block for before it joined.
func TestRecreationIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		reason expand.Reason
		agent  bool
		want   int
	}{
		"under its agent":       {agent: true, want: 1},
		"the Node joins again":  {reason: expand.NodeGone, agent: true},
		"the block came before": {},
	} {
		t.Run(name, func(t *testing.T) {
			block, want := inService("10.0.0.0/30"), test.want
			if test.reason != expand.None {
				crd.SetBlockPhase(block, ipalloc.CoolingDown, test.reason, "", fixtures.Noon())
			}
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), block)
			if test.agent {
				b.settleAgent()
			}
			b.settle()
			if b.CiliumNode() == nil {
				t.Fatal("none was made")
			}
			if n := len(b.EventsOf(event.ReasonCiliumNodeRemade)); n != want {
				t.Errorf("reported %d times, want %d", n, want)
			}
		})
	}
}

// If a Node opts out, its blocks cool down once its CiliumNode, read live, is gone. No
// CiliumNode is created for it.
func TestOptedOutNode(t *testing.T) {
	optedOut := fixtures.Node()
	optedOut.Labels = map[string]string{v1alpha1.OptOutLabel: "true"}
	objects := func() []client.Object {
		return []client.Object{optedOut.DeepCopy(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), inService("10.0.0.0/30")}
	}
	t.Run("its CiliumNode is gone", func(t *testing.T) {
		b := newBed(t, objects()...)
		b.settle()
		if b.CiliumNode() != nil || b.Blocks()[0].Phase != ipalloc.CoolingDown {
			t.Errorf("CiliumNode %v, blocks %+v", b.CiliumNode(), b.Blocks())
		}
	})
	t.Run("its CiliumNode is there, though the watch has not shown it", func(t *testing.T) {
		b := newBed(t, append(objects(), publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1"))...)
		b.r.Ledger.RemoveCiliumNode(b.r.Ledger.MissingCiliumNodes(nil, fakeapi.Latest)[0])
		b.r.Ledger.ForgetCiliumNode("n")
		b.Lags = true
		b.step()
		if b.Blocks()[0].Phase != ipalloc.InService {
			t.Errorf("blocks %+v", b.Blocks())
		}
	})
}

// A block object that was removed by force is recreated as long as the CiliumNode, read live, lists
// the block.
func TestForciblyRemovedBlock(t *testing.T) {
	newCase := func(t *testing.T) *bed {
		return newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), publishing(fixtures.CiliumNode("n", "", "10.0.0.4/30", "192.168.0.0/24"), "10.0.0.5"))
	}
	t.Run("it is listed", func(t *testing.T) {
		b := newCase(t)
		b.settle()
		if !b.has("10.0.0.4/30") || b.has("192.168.0.0/24") {
			t.Errorf("blocks %+v", b.Blocks())
		}
	})
	t.Run("it is listed no more, read live", func(t *testing.T) {
		b := newCase(t)
		b.Lag()
		b.must(b.API.Patch(t.Context(), bare(), fakeapi.RawMerge(`{"spec":{"ipam":{"podCIDRs":[],"pool":null}}}`)))
		b.step()
		if b.has("10.0.0.4/30") {
			t.Errorf("blocks %+v", b.Blocks())
		}
	})
}

// While the watch lags behind the deletion of a Node, the operator does not restore its
// CiliumNode: the garbage collector would delete it again, and so on forever.
func TestCiliumNodeOfGoneNodeIsNotRestored(t *testing.T) {
	b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), inService("10.0.0.0/30"))
	b.r.Ledger.RemoveCiliumNode(ciliumnode.NewView(lastSeen("node-uid")))
	o, err := b.r.observe(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	o.Node = fixtures.Node() // as a cache has it that lags
	if _, err := b.r.recreate(t.Context(), o, b.r.Ledger.LastCiliumNode("n"), &outcome{}); !errors.Is(err, errCacheBehind) || b.CiliumNode() != nil {
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
	b.r.Paused = true
	o, err := b.r.observe(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	b.memoryOf(o.uid(), ipalloc.IPv4).IdleSince = []time.Time{fixtures.Noon()}
	b.r.decide(t.Context(), o)
	if got := b.memoryOf(o.uid(), ipalloc.IPv4); len(got.IdleSince) > 0 {
		t.Errorf("remembers %v", got.IdleSince)
	}
}

// An agent that runs steadily and has not reported addresses in use is asked to, once.
func TestSilentAgentIsAsked(t *testing.T) {
	for name, test := range map[string]struct {
		paused, settled bool
		want            int
	}{
		"settled": {settled: true, want: 1}, "not settled": {want: 0}, "paused": {paused: true, settled: true, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"),
				publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"),
				inService("10.0.0.0/29"))
			b.r.Paused = test.paused
			b.agentSince(0)
			if test.settled {
				b.at(time.Hour)
			}
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
