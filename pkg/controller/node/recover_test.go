package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// recovering returns a bed of a process that began after a restore of etcd, on a node with a settled agent and a
// pod that waits.
func recovering(t *testing.T, mode ciliumnode.Mode, objects ...client.Object) *bed {
	t.Helper()
	b := newBedIn(t, mode, append(objects, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), inService("10.0.0.0/30"))...)
	b.r.Cluster.Recovery = &state.Recovery{}
	b.r.Cluster.Recovery.Begin(true, b.Clock.Now())
	b.settleAgent()
	b.r.Cluster.Pods.Set(podOn("waits"), fixtures.Noon())
	return b
}

// answers has the agent of n answer the mark that asks it for a report.
func (b *bed) answers(answer string) {
	b.T.Helper()
	b.agentIs(func(cn *ciliumv2.CiliumNode) {
		cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{"233.252.0.1": ipamtypes.IPReleaseStatus(answer)}
	})
}

// After a restore a node asks its agent for a report, whatever an earlier answer said, and gets the blocks back that
// its agent and its pods use. It claims no other block before the recovery ends.
func TestRecoverBlocksInUse(t *testing.T) {
	for name, before := range map[string]string{"never asked": "", "an answer from before": "do-not-release", "asked before": "marked-for-release"} {
		t.Run(name, func(t *testing.T) {
			cn := publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2")
			cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1", "10.0.0.2")
			b := recovering(t, ciliumnode.CRD, cn)
			if before != "" {
				b.answers(before)
			}
			b.settle()
			if got := string(b.raw().Status.IPAM.ReleaseIPs["233.252.0.1"]); got != "marked-for-release" {
				t.Fatalf("the agent is asked for a report by %q", got)
			}
			b.r.Cluster.Pods.Set(podOn("young", "10.0.0.9"), fixtures.Noon())
			b.settleAfter(time.Hour)
			b.hasPhases("the agent has yet to report", "10.0.0.0/30 InService")

			b.reports("10.0.0.1", "10.0.0.2", "10.0.0.5")
			b.answers("do-not-release")
			b.settle()
			b.hasPhases("it has reported", "10.0.0.0/30 InService", "10.0.0.4/30 InService", "10.0.0.8/30 InService")
			b.publishes("10.0.0.1", "10.0.0.2")
			if !b.r.Cluster.Recovery.HasRecovered("n") || len(b.EventsOf(event.ReasonBlockRemade)) != 2 {
				t.Errorf("recovered: %t, events %q", b.r.Cluster.Recovery.HasRecovered("n"), b.EventsOf(event.ReasonBlockRemade))
			}
			b.r.Cluster.Recovery.End()
			b.settle()
			if got := b.published(); len(got) < 3 {
				t.Errorf("published %q, want the addresses in use", got)
			}
			b.Check("the recovery has ended")
		})
	}
}

// A node that lost many blocks gets all back at once: errors that it needs so many repairs would slow it down.
func TestRecoverManyBlocks(t *testing.T) {
	cn := publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2")
	cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1", "10.0.0.2")
	b := recovering(t, ciliumnode.CRD, cn, fixtures.PodIPPool("q", 1, "10.0.1.0/27"))
	b.settle()
	used := []string{"10.0.0.1", "10.0.0.2"}
	for i := range 8 {
		used = append(used, fmt.Sprintf("10.0.1.%d", 4*i+1), fmt.Sprintf("10.0.1.%d", 4*i+2))
	}
	b.reports(used...)
	b.answers("do-not-release")
	if _, err := b.reconcile(); err != nil || len(b.EventsOf(event.ReasonBlockRemade)) != 8 || !b.r.Cluster.Recovery.HasRecovered("n") {
		t.Errorf("error %v, events %q", err, b.EventsOf(event.ReasonBlockRemade))
	}
}

// An agent answers no mark while its CiliumNode has no pool, and makes no CiliumNode while it runs: such nodes joined around
// the time of the snapshot.
func TestRecoverAsksJoinedNodes(t *testing.T) {
	for name, objects := range map[string][]client.Object{"no pool": {fixtures.CiliumNode("n", "")}, "no CiliumNode": nil} {
		t.Run(name, func(t *testing.T) {
			b := recovering(t, ciliumnode.CRD, objects...)
			writes := fakeapi.WritesOf(b.step())
			if !slices.Contains(writes, "patch CiliumNode") || !slices.Contains(writes, "patch CiliumNode status") || !b.r.Cluster.Recovery.Probed("n") {
				t.Errorf("writes %q, asked: %t", writes, b.r.Cluster.Recovery.Probed("n"))
			}
		})
	}
}

// A process that restarts during a recovery asks again, and one that finds no agent changes nothing.
func TestRecoverAsksAgainAfterRestart(t *testing.T) {
	b := recovering(t, ciliumnode.CRD, publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"))
	b.settle()
	b.answers("do-not-release")
	b.restart()
	b.r.Cluster.Recovery = &state.Recovery{}
	b.r.Cluster.Recovery.Begin(true, b.Clock.Now())
	b.writesNothing("no agent is known")
	b.settleAgent()
	b.settle()
	if b.r.Cluster.Recovery.HasRecovered("n") {
		t.Error("the answer to an earlier process counts")
	}
}

// Agents that are assigned whole blocks cannot be asked: in multi-pool mode they correct their lists by themselves.
func TestRecoverWholeBlocks(t *testing.T) {
	b := recovering(t, ciliumnode.MultiPool, fixtures.Pooled(1, "10.0.0.0/30"))
	b.agentWrites(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":5}}]}}}}`)
	b.r.Cluster.Pods.Set(podOn("young", "10.0.0.9"), fixtures.Noon())
	b.settle()
	b.hasPhases("agents may have yet to correct their lists", "10.0.0.0/30 InService")
	b.settleAfter(2 * time.Minute)
	b.hasPhases("they have", "10.0.0.0/30 InService", "10.0.0.8/30 InService")
	b.r.Cluster.Recovery.End()
	b.settle()
	b.Check("the recovery has ended")
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"), b.listed(), fixtures.CompareNetip()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}

// A node agent takes the mark away with its report, which is from the node's disk.
func TestRecoverAsksNodeAgents(t *testing.T) {
	b := recovering(t, ciliumnode.DelegatedPlugin, fixtures.Pooled(1, "10.0.0.0/30"))
	b.settleAfter(time.Hour)
	if got := string(b.raw().Status.IPAM.ReleaseIPs["233.252.0.1"]); got != "marked-for-release" {
		t.Fatalf("the node agent is asked for a report by %q", got)
	}
	b.hasPhases("it has yet to report", "10.0.0.0/30 InService")
	b.agentIs(func(cn *ciliumv2.CiliumNode) {
		cn.Status.IPAM.ReleaseIPs = nil
		cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1", "10.0.0.9")
	})
	b.settle()
	b.hasPhases("it has reported", "10.0.0.0/30 InService", "10.0.0.8/30 InService")
	if !b.r.Cluster.Recovery.HasRecovered("n") {
		t.Error("the node has not recovered")
	}
	b.r.Cluster.Recovery.End()
	b.settle()
	if listed := b.listed(); !slices.Contains(listed, fixtures.Prefixes("10.0.0.8/30")[0]) {
		t.Errorf("listed %v, want the block that is back, too", listed)
	}
}

// A recovery frees no block of a Node that is gone: the restored objects may be older than the Node.
func TestRecoveryKeepsBlocksOfGoneNodes(t *testing.T) {
	b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1"), inService("10.0.0.0/30"))
	b.r.Cluster.Recovery = &state.Recovery{}
	b.r.Cluster.Recovery.Begin(false, b.Clock.Now())
	if writes := fakeapi.WritesOf(b.step()); len(writes) > 0 {
		t.Errorf("writes %v", writes)
	}
	b.r.Cluster.Recovery.End()
	if writes := fakeapi.WritesOf(b.step()); len(writes) == 0 {
		t.Error("no write after the recovery")
	}
}
