package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// lastSeen is node n's CiliumNode before it was deleted: owned by the Node with that UID, with
// addresses of two blocks and a foreign one.
func lastSeen(uid string) *ciliumv2.CiliumNode {
	cn := fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30", "10.0.0.4/30"), "10.0.0.1", "10.0.0.2", "10.0.0.5", "172.16.0.1")
	cn.ResourceVersion = "1"
	cn.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: types.UID(uid)}}
	return cn
}

func TestCiliumNodeIsRestored(t *testing.T) {
	tests := map[string]struct {
		last   *ciliumv2.CiliumNode
		second ipalloc.Phase // of the second block
		change func(b *bed)  // as the blocks are read again
		want   []string
	}{
		"as it was seen": {
			last: lastSeen("node-uid"), want: []string{"10.0.0.1", "10.0.0.2", "10.0.0.5", "172.16.0.1"},
		},
		"with a block that drains": {
			last: lastSeen("node-uid"), second: ipalloc.Draining, want: []string{"10.0.0.1", "10.0.0.2", "10.0.0.5", "172.16.0.1"},
		},
		"without a block that cools down": {
			last: lastSeen("node-uid"), second: ipalloc.CoolingDown, want: []string{"10.0.0.1", "10.0.0.2", "172.16.0.1"},
		},
		"without a block that is gone, read live": {
			last: lastSeen("node-uid"), want: []string{"10.0.0.1", "10.0.0.2", "172.16.0.1"},
			change: func(b *bed) {
				ledger := b.r.Ledger
				b.r.Ledger = state.NewLedger() // another process: this one's watch lags
				obj := fixtures.BlockObject("10.0.0.4/30", ipalloc.InService)
				for _, k := range b.Blocks() {
					if k.CIDR == fixtures.Prefix("10.0.0.4/30") {
						obj.ResourceVersion = k.ResourceVersion
					}
				}
				obj.Finalizers = nil
				if err := b.API.Update(b.T.Context(), obj); err != nil {
					b.T.Fatal(err)
				}
				if err := b.API.Delete(b.T.Context(), obj); err != nil {
					b.T.Fatal(err)
				}
				b.r.Ledger = ledger
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", test.second))
			b.r.Ledger.RemoveCiliumNode(ciliumnode.NewView(test.last))
			if test.change != nil {
				b.Before = func(call string) {
					if call == "get PodIPBlock" {
						b.Before = func(string) {}
						test.change(b)
					}
				}
			}
			b.ensureCiliumNode()
			if got := b.published(); !slices.Equal(got, test.want) {
				t.Errorf("published %v, want %v", got, test.want)
			}
			// A mark that the agent refuses makes it report.
			if got := b.CiliumNode().Release; len(got) != 1 {
				t.Errorf("release entries %v, want one", got)
			}
		})
	}
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
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
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
			block := fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)
			last := fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2")
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
			block, want := fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), test.want
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

// The CiliumNode of an earlier Node with the same name is not restored.
func TestCiliumNodeOfAnOlderNodeIsNotRestored(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b.r.Ledger.RemoveCiliumNode(ciliumnode.NewView(lastSeen("old-uid")))
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if got := b.published(); slices.Contains(got, "172.16.0.1") {
		t.Errorf("published %v", got)
	}
}

// If a Node opts out, its blocks cool down once its CiliumNode, read live, is gone. No
// CiliumNode is created for it.
func TestOptedOutNode(t *testing.T) {
	optedOut := fixtures.Node()
	optedOut.Labels = map[string]string{v1alpha1.OptOutLabel: "true"}
	objects := func() []client.Object {
		return []client.Object{optedOut.DeepCopy(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)}
	}
	t.Run("its CiliumNode is gone", func(t *testing.T) {
		b := newBed(t, objects()...)
		b.settle()
		if b.CiliumNode() != nil || b.Blocks()[0].Phase != ipalloc.CoolingDown {
			t.Errorf("CiliumNode %v, blocks %+v", b.CiliumNode(), b.Blocks())
		}
	})
	t.Run("its CiliumNode is there, though the watch has not shown it", func(t *testing.T) {
		b := newBed(t, append(objects(), fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1"))...)
		b.r.Ledger.RemoveCiliumNode(b.r.Ledger.MissingCiliumNodes(nil, fakeapi.Latest)[0])
		b.r.Ledger.ForgetCiliumNode("n")
		b.Lags = true
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		if b.Blocks()[0].Phase != ipalloc.InService {
			t.Errorf("blocks %+v", b.Blocks())
		}
	})
}

// A block object that was removed by force is recreated as long as the CiliumNode, read live, lists
// the block.
func TestForciblyRemovedBlock(t *testing.T) {
	newCase := func(t *testing.T) *bed {
		return newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.4/30", "192.168.0.0/24"), "10.0.0.5"))
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
		if err := b.API.Patch(t.Context(), fixtures.Publishing(fixtures.CiliumNode("n", "")), fakeapi.RawMerge(`{"spec":{"ipam":{"podCIDRs":[],"pool":null}}}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		if b.has("10.0.0.4/30") {
			t.Errorf("blocks %+v", b.Blocks())
		}
	})
}

// While the watch lags behind the deletion of a Node, the operator does not restore its
// CiliumNode: the garbage collector would delete it again, and so on forever.
func TestCiliumNodeOfGoneNodeIsNotRestored(t *testing.T) {
	b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
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

// A paused operator keeps the CiliumNode of a Node that is gone.
func TestPausedOperatorLeavesGoneNodes(t *testing.T) {
	b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b.r.Paused = true
	if calls, err := b.reconcile(); err != nil || len(fakeapi.WritesOf(calls)) > 0 {
		t.Errorf("calls %v, %v; want no write", calls, err)
	}
}

// Only the CiliumNode that existed before the Node was found to be gone is deleted; a later one
// belongs to a new Node.
func TestGoneNodesRecreatedCiliumNodeStays(t *testing.T) {
	b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b.Before = func(call string) {
		if call != "get Node" {
			return
		}
		b.Before = func(string) {}
		// The agent adopts it right after the operator has looked for the Node.
		taken := fakeapi.RawMerge(`{"metadata":{"labels":{"new":"node"}}}`)
		if err := b.API.Patch(t.Context(), fixtures.Publishing(fixtures.CiliumNode("n", "")), taken); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if b.CiliumNode() == nil {
		t.Error("the CiliumNode of the new Node is gone")
	}
}

// A foreign address that now lies in another node's block is not restored, even if the watch
// has not delivered that block yet.
func TestCiliumNodeIsRestoredWithoutWhatIsAnothersNow(t *testing.T) {
	for name, shown := range map[string]bool{"the block is shown": true, "the watch lags": false} {
		t.Run(name, func(t *testing.T) { restoreWithoutAnothers(t, shown) })
	}
}

func restoreWithoutAnothers(t *testing.T, shown bool) {
	t.Helper()
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.InService))
	b.r.Ledger.RemoveCiliumNode(ciliumnode.NewView(lastSeen("node-uid")))
	b.Blind = !shown
	if err := b.API.Create(t.Context(), crd.NewBlock(fixtures.Prefix("172.16.0.0/30"), "q", "m", "")); err != nil {
		t.Fatal(err)
	}
	b.ensureCiliumNode()
	if got, want := b.published(), []string{"10.0.0.1", "10.0.0.2", "10.0.0.5"}; !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
}

// A CiliumNode is restored without a block that overlaps one it listed and was created later.
func TestCiliumNodeIsRestoredWithoutWhatOverlaps(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService),
		fixtures.BlockObject("10.0.0.4/30", ipalloc.InService), fixtures.BlockObject("10.0.0.0/29", ipalloc.InService))
	b.r.Ledger.RemoveCiliumNode(ciliumnode.NewView(lastSeen("node-uid")))
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{fixtures.Prefix("10.0.0.0/30"), fixtures.Prefix("10.0.0.4/30")}
	if v := b.CiliumNode(); !slices.Equal(v.PodCIDRs, want) || len(v.Pool) != 4 {
		t.Errorf("podCIDRs are %v and pool %v; want %v and what was there", v.PodCIDRs, v.Pool, want)
	}
}

// If a block was removed by force together with its CiliumNode, the block is claimed again
// before its addresses are restored.
func TestCiliumNodeIsRestoredAfterItsBlocks(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
	b.r.Ledger.RemoveCiliumNode(ciliumnode.NewView(lastSeen("node-uid")))
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	writes := strings.Join(b.Calls, "; ")
	claim, put := strings.Index(writes, "create PodIPBlock"), strings.Index(writes, "create CiliumNode")
	if claim < 0 || put >= 0 && put < claim {
		t.Errorf("calls: %s; want the block recreated first", writes)
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
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"),
		fixtures.BlockObject("10.0.0.0/30", ipalloc.InService))
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
				fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"),
				fixtures.BlockObject("10.0.0.0/29", ipalloc.InService))
			b.r.Paused = test.paused
			b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
			if test.settled {
				b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
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
