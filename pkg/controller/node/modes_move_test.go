package node

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// An operator that starts in multi-pool mode lists every block of a node at once while its agent
// still runs in crd mode, and does not change the fields that this agent reads. A draining block is
// listed if a pod has an address in it; otherwise the agent could not restore the pod.
func TestFromCRDToMultiPool(t *testing.T) {
	cn := publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"), "10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.0.6", "10.0.0.9")
	cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1", "10.0.0.9")
	cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{"10.0.0.6": "ready-for-release"}
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), cn,
		inService("10.0.0.0/30"), inService("10.0.0.4/30"),
		fixtures.BlockObject("10.0.0.8/30", ipalloc.Draining), coolingDown("10.0.0.12/30"))
	before := b.raw()
	b.r.Pods.Set(podOn("stays", "10.0.0.9"), fixtures.Noon())
	pods := b.r.Pods
	b.Mode = ciliumnode.MultiPool
	b.restart()
	b.r.Pods = pods
	b.settle()
	b.listsOnly("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30")
	after := b.raw()
	if diff := cmp.Diff([]any{before.Spec.IPAM.Pool, before.Spec.IPAM.PodCIDRs, before.Status.IPAM.Used},
		[]any{after.Spec.IPAM.Pool, after.Spec.IPAM.PodCIDRs, after.Status.IPAM.Used}, fixtures.CompareNetip()); diff != "" {
		t.Errorf("what the agent reads has changed (-before +after):\n%s", diff)
	}
	if len(after.Status.IPAM.ReleaseIPs) > 0 {
		t.Errorf("release entries %v: an agent that restarts would not restore these addresses in crd mode", after.Status.IPAM.ReleaseIPs)
	}

	// The agent restarts in its new mode and returns unneeded blocks.
	b.agentWrites(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":3}}],"allocated":[{"pool":"default","cidrs":["10.0.0.0/30","10.0.0.8/30"]}]}}}}`)
	b.settle()
	b.settleAt(time.Hour)
	if b.has("10.0.0.4/30") {
		t.Errorf("the block is not free: %+v", b.Blocks())
	}
	// Its addresses are still in the pool, so no other node may get them.
	if held := b.r.Ledger.NamedElsewhere("another", fixtures.Prefix("10.0.0.4/30")); len(held) == 0 {
		t.Error("a block could be claimed whose addresses another CiliumNode names")
	}
}

// Back before anything was cleaned up: the agent's requests of its last run in multi-pool mode
// are still there, and it now has blocks that it was never assigned in that mode.
func TestBackToMultiPoolBeforeTidy(t *testing.T) {
	for name, forgets := range map[string]bool{"its agent takes its report away": true, "an older one leaves it": false} {
		t.Run(name, func(t *testing.T) {
			cn := publishing(fixtures.Pooled(2, "10.0.0.0/30"), "10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.0.6")
			cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, fixtures.PodCIDR("10.0.0.0/30"), fixtures.PodCIDR("10.0.0.4/30"))
			cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1")
			b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), cn,
				inService("10.0.0.0/30"), inService("10.0.0.4/30"))
			b.settle()
			b.settleAt(time.Hour)
			if diff := cmp.Diff(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30"), b.listed(), fixtures.CompareNetip()); diff != "" || len(b.Blocks()) != 2 {
				t.Fatalf("blocks %+v, listed (-want +got):\n%s", b.Blocks(), diff)
			}

			// The agent starts in multi-pool mode and does not need one of them.
			if forgets {
				b.must(b.API.Status().Patch(t.Context(), fixtures.CiliumNode("n", ""), fakeapi.RawMerge(`{"status":{"ipam":{"used":null}}}`)))
			}
			b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`)
			b.settle()
			b.settleAt(2 * time.Hour)
			if b.has("10.0.0.4/30") || len(b.listed()) != 1 {
				t.Errorf("blocks %+v, listed %v: what the agent has returned is not free", b.Blocks(), b.listed())
			}
		})
	}
}

// From a block of another Cilium pool, an agent in crd mode keeps the addresses of earlier pods
// and assigns none to new ones: those pods would belong to the default pool, and could not be
// restored once the block is listed for its own pool again.
func TestCiliumPoolOnTheWayToCRDAndBack(t *testing.T) {
	blue := crd.NewBlock(fixtures.Prefix("10.8.0.0/30"), "blues", "n", "node-uid")
	blue.UID = "uid-blue"
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), fixtures.BluePool("10.8.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"),
		inService("10.0.0.0/30"), blue)
	b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"blue","cidrs":["10.8.0.0/30"]},{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`)
	pods := b.r.Pods
	pods.Set(podOn("blue", "10.8.0.1"), fixtures.Noon().Add(-time.Hour))
	again := func(mode ciliumnode.Mode) {
		b.Mode = mode
		b.restart()
		b.r.Pods = pods
		b.settleAgent()
		b.settle()
	}
	published := func(when string, want ...string) {
		t.Helper()
		var got []string
		for addr := range b.raw().Spec.IPAM.Pool {
			if strings.HasPrefix(addr, "10.8.") {
				got = append(got, addr)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	again(ciliumnode.CRD)
	published("the agent runs in multi-pool mode, and may have given out any", "10.8.0.1", "10.8.0.2")
	b.reports("10.0.0.1", "10.8.0.1")
	b.settle()
	if state := b.CiliumNode().Release; state[netip.MustParseAddr("10.8.0.1")] != "" || state[netip.MustParseAddr("10.8.0.2")] != expand.Marked {
		t.Fatalf("entries %v; want the address marked that is not in use", state)
	}
	answer := fakeapi.RawMerge(`{"status":{"ipam":{"release-ips":{"10.8.0.2":"ready-for-release"}}}}`)
	b.must(b.API.Status().Patch(t.Context(), fixtures.CiliumNode("n", ""), answer))
	b.settle()
	b.settleAt(time.Minute)
	published("the agent runs in crd mode", "10.8.0.1")
	b.Check("in crd mode")

	again(ciliumnode.MultiPool)
	if diff := cmp.Diff(fixtures.Prefixes("10.8.0.0/30"), b.CiliumNode().Of("blue").PodCIDRs, fixtures.CompareNetip()); diff != "" || len(b.CiliumNode().Of("").PodCIDRs) < 2 {
		t.Errorf("listed %v for the default pool, for blue (-want +got):\n%s", b.CiliumNode().Of("").PodCIDRs, diff)
	}
}

// Back in crd mode every block of the node is published, and none is requested back from an agent
// that still runs in multi-pool mode.
func TestFromMultiPoolToCRD(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), fixtures.Pooled(2, "10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"),
		inService("10.0.0.0/30"), inService("10.0.0.4/30"), inService("10.0.0.8/30"))
	before := b.raw().Spec.IPAM.Pools
	b.Mode = ciliumnode.CRD
	b.restart()
	b.settleAgent()
	b.settle()
	b.at(24 * time.Hour) // long enough for any reclaim
	b.settle()
	cn := b.raw()
	if len(cn.Spec.IPAM.Pool) != 6 || len(cn.Spec.IPAM.PodCIDRs) != 3 {
		t.Errorf("published %v, podCIDRs %v", cn.Spec.IPAM.Pool, cn.Spec.IPAM.PodCIDRs)
	}
	if !slices.EqualFunc(before.Allocated, cn.Spec.IPAM.Pools.Allocated, func(a, b ipamtypes.IPAMPoolAllocation) bool { return a.DeepEqual(&b) }) {
		t.Errorf("what the agent reads has changed to %v", cn.Spec.IPAM.Pools.Allocated)
	}
	for _, k := range b.Blocks() {
		if k.Phase != ipalloc.InService {
			t.Errorf("%s is %v: the agent was never asked in a way that it reads", k.CIDR, k.Phase)
		}
	}
	for addr, state := range cn.Status.IPAM.ReleaseIPs {
		if _, published := cn.Spec.IPAM.Pool[addr]; published {
			t.Errorf("%s is %s: the agent would not restore it when it comes up in crd mode", addr, state)
		}
	}
	b.Check("at the end")
}
