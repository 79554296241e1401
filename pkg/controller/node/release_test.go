package node

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// markMoved records that the CiliumNode has changed since a block began to cool down.
func (b *bed) markMoved(cidr string) {
	b.T.Helper()
	held, ok := b.r.Cluster.Ledger.Block(fixtures.Prefix(cidr))
	if !ok {
		b.T.Fatalf("no block %s", cidr)
	}
	b.r.Cluster.Ledger.MarkFenced(held)
}

// full is the CiliumNode of n with six addresses, as many as it needs.
func full() *ciliumv2.CiliumNode {
	return publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6")
}

// cooled is node n with all it needs, and a block that has cooled down; resting if the CiliumNode
// has changed since.
func cooled(t *testing.T, cidr string) *bed {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), full(), inService("10.0.0.0/29"), coolingDown(cidr))
	b.at(time.Hour)
	return b
}

func resting(t *testing.T) *bed {
	b := cooled(t, "10.0.0.12/30")
	b.markMoved("10.0.0.12/30")
	return b
}

// A block that changes between the two writes that release it stays.
func TestReconcileDeletesNoBlockThatChanged(t *testing.T) {
	b := resting(t)
	b.once("delete PodIPBlock", func() {
		obj := b.object("10.0.0.12-30")
		crd.SetBlockPhase(obj, ipalloc.InService, expand.None, "x", fixtures.Noon())
		b.must(b.API.Status().Update(t.Context(), obj))
	})
	b.step() // it loses
	b.block("10.0.0.12/30")
}

// If another finalizer keeps a block's object, the block stays taken until that is gone, is not
// written to any more, and is reported once that lasts.
func TestReconcileWaitsForAnotherFinalizer(t *testing.T) {
	b := resting(t)
	obj := b.object("10.0.0.12-30")
	obj.Finalizers = append(obj.Finalizers, "example.com/record")
	b.must(b.API.Update(t.Context(), obj))
	b.markMoved("10.0.0.12/30")
	b.step()
	b.makesNoProgress("example.com/record")
	if obj = b.object("10.0.0.12-30"); obj.DeletionTimestamp == nil || len(obj.Finalizers) != 1 {
		t.Errorf("deleted %v, with finalizers %v; want it deleted, with the other finalizer alone", obj.DeletionTimestamp, obj.Finalizers)
	}
	if _, held := b.r.Cluster.Ledger.Block(fixtures.Prefix("10.0.0.12/30")); !held {
		t.Error("the block's addresses are free, though its object is there")
	}
}

// A block whose deletion loses a race for good, as its agent has a part of it in another Cilium pool, stops
// no other deletion.
func TestReconcileDeletesBesideABlockThatStays(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), fixtures.Listing("10.0.0.8/29"),
		inService("10.0.0.0/30"), coolingDown("10.0.0.8/30"), coolingDown("10.0.0.16/30"))
	b.at(time.Hour)
	for range 3 {
		_, err := b.reconcile()
		b.must(err)
	}
	b.hasPhases("at the end", "10.0.0.0/30 InService", "10.0.0.8/30 CoolingDown")
}

// makesNoProgress fails the test unless reconciles delete nothing for minutes, go on, and are
// reported once, with these words.
func (b *bed) makesNoProgress(words string) {
	b.T.Helper()
	for i := range 12 {
		b.Calls = nil
		b.Watch()
		result, err := b.r.Reconcile(b.T.Context(), fakeapi.RequestOf("n"))
		if slices.ContainsFunc(b.Calls, func(call string) bool { return strings.HasPrefix(call, "delete") || call == "patch PodIPBlock" }) {
			b.T.Errorf("reconcile %d calls %v", i, b.Calls)
		}
		if err == nil && result.RequeueAfter == 0 {
			b.T.Errorf("reconcile %d is the last", i)
		}
		b.Clock.SetTime(b.Clock.Now().Add(max(result.RequeueAfter, common.MaxBackoff)))
	}
	if sent := b.EventsOf(event.ReasonNoProgress); len(sent) != 1 || !strings.Contains(sent[0], words) {
		b.T.Errorf("events %q", sent)
	}
}

// A block stays while its CiliumNode, read live, still names any of its addresses, in any
// notation: the agent assigns those as well. It also stays if the CiliumNode is another one.
func TestReconcileReleasesNothingThatIsPublished(t *testing.T) {
	for name, patch := range map[string]string{
		"an address":           `{"spec":{"ipam":{"pool":{"10.0.0.13":{}}}}}`,
		"a key in an odd form": `{"spec":{"ipam":{"pool":{"::ffff:10.0.0.13":{}}}}}`,
		"a podCIDR":            `{"spec":{"ipam":{"podCIDRs":["10.0.0.0/29","10.0.0.12/30"]}}}`,
		"created again":        "",
	} {
		t.Run(name, func(t *testing.T) {
			b := resting(t)
			b.Lag()
			if patch != "" {
				b.agentWrites(patch)
			} else {
				cn := fixtures.CiliumNode("n", "")
				b.must(errors.Join(b.API.Delete(t.Context(), cn), b.API.Create(t.Context(), cn)))
			}
			b.step()
			b.block("10.0.0.12/30")
		})
	}
	t.Run("published before the fence", func(t *testing.T) {
		b := cooled(t, "10.0.0.12/30")
		b.once("get CiliumNode", func() { b.agentWrites(`{"spec":{"ipam":{"pool":{"10.0.0.13":{}}}}}`) })
		b.step()
		b.block("10.0.0.12/30")
	})
	// A CIDR that overlaps it and is not a block: the agent assigns those addresses to pods.
	for name, cidrs := range map[string]string{
		"listed whole": `"10.0.0.0/30","10.0.0.12/30"`, "listed as part of another": `"10.0.0.0/30","10.0.0.8/29"`, "listed in part": `"10.0.0.0/30","10.0.0.12/31"`,
	} {
		t.Run(name, func(t *testing.T) {
			b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"), inService("10.0.0.0/30"), coolingDown("10.0.0.12/30"))
			b.at(time.Hour)
			b.markMoved("10.0.0.12/30")
			b.Lag()
			b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":[` + cidrs + `]}]}}}}`)
			b.step()
			b.block("10.0.0.12/30")
		})
	}
}

// The fence for a released block does not mark an address that an overlapping block, still in
// service, contains.
func TestReconcileMarksNothingOfAnOverlappingBlock(t *testing.T) {
	b := cooled(t, "10.0.0.4/30")
	for range 5 {
		b.step()
		for addr := range b.CiliumNode().Release {
			if fixtures.Prefix("10.0.0.0/29").Contains(addr) {
				t.Fatalf("%s, which serves, is marked", addr)
			}
		}
	}
	b.hasPhases("the block that overlaps is released", "10.0.0.0/29 InService")
}

// A clock was years ahead when a block began to cool down: it counts from when this process saw it.
func TestCooldownFromTheFuture(t *testing.T) {
	block := coolingDown("10.0.0.0/30")
	crd.SetBlockPhase(block, ipalloc.CoolingDown, expand.NodeGone, "x", fixtures.Noon().AddDate(10, 0, 0))
	b, lasts := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/29"), block), fixtures.Defaults().NodeGoneCooldown
	b.settle()
	b.at(lasts / 2)
	obj := b.object("10.0.0.0-30")
	obj.Annotations = map[string]string{"some": "edit"}
	b.must(b.API.Update(t.Context(), obj))
	b.settleAt(lasts - time.Second)
	b.block("10.0.0.0/30")
	b.settleAt(lasts + time.Second)
	if b.has("10.0.0.0/30") {
		t.Errorf("it still cools down %s later", lasts)
	}
}

// A block cools down for as long as its reason requires, whether or not its pool exists.
func TestReconcileCoolsDownByReason(t *testing.T) {
	for reason, lasts := range map[expand.Reason]time.Duration{expand.Returned: time.Minute, expand.NodeGone: 10 * time.Minute} {
		for _, pool := range []string{"p", "gone"} {
			t.Run(string(reason)+" "+pool, func(t *testing.T) {
				cooling := coolingDown("10.0.0.12/30")
				cooling.Spec.PoolName = pool
				crd.SetBlockPhase(cooling, ipalloc.CoolingDown, reason, "x", fixtures.Noon())
				b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), cooling)
				b.settleAt(lasts - time.Second)
				b.block("10.0.0.12/30")
				b.settleAt(lasts)
				b.hasPhases("cooled down")
			})
		}
	}
}

// A status that is lost begins the cooldown again.
func TestCooldownWithoutItsStatus(t *testing.T) {
	cooling := coolingDown("10.0.0.12/30")
	crd.SetBlockPhase(cooling, ipalloc.CoolingDown, expand.NodeGone, "x", fixtures.Noon())
	b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), cooling)
	b.settleAt(9 * time.Minute)
	obj := b.object("10.0.0.12-30")
	obj.Status = v1alpha1.PodIPBlockStatus{}
	b.must(b.API.Status().Update(t.Context(), obj))
	b.settleAt(18 * time.Minute)
	b.hasPhases("after the first cooldown", "10.0.0.12/30 CoolingDown")
	b.settleAt(30 * time.Minute)
	b.hasPhases("after another one")
}

// While the cache lags behind our last write to a CiliumNode, no decision is made.
func TestReconcileWaitsForItsOwnLastWrite(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), bare())
	b.Lag()
	if len(fakeapi.WritesOf(b.step())) == 0 {
		t.Fatal("no write")
	}
	b.callsNothing("the watch lags")
	b.Lags = false
	b.callsNothing("once it is shown")
}

// The condition is written before the addresses of a block are marked and the agent's own
// addresses retired.
func TestReconcileDrainsBeforeItMarks(t *testing.T) {
	cn := using(publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30", "10.0.0.4/30"), "10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.0.6"), "10.0.0.1")
	cn.Spec.HealthAddressing.IPv4 = "10.0.0.6"
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Spec.Expand.MinFreeAddresses = new(int32)
	b := newBed(t, fixtures.Node(), pool, cn, inService("10.0.0.0/30"), fixtures.BeingDeleted(inService("10.0.0.4/30")))
	b.agentSince(0)
	b.at(time.Hour)
	b.once("patch CiliumNode status", func() { b.hasPhases("as addresses are marked", "10.0.0.0/30 InService", "10.0.0.4/30 Draining") })
	for range 5 {
		b.step()
	}
	want := map[netip.Addr]expand.ReleaseStatus{fixtures.Addrs("10.0.0.5")[0]: expand.Marked, fixtures.Addrs("10.0.0.6")[0]: expand.Released}
	if got := b.CiliumNode().Release; !maps.Equal(got, want) {
		t.Errorf("entries are %v, want %v", got, want)
	}
}

// fenced fails the test if a block goes before its CiliumNode has changed since the block began to
// cool down: an older patch could still publish it.
func (b *bed) fenced() {
	version := b.CiliumNode().ResourceVersion
	before := b.Before
	b.Before = func(call string) {
		switch call {
		case "update PodIPBlock status":
			version = b.CiliumNode().ResourceVersion
		case "patch PodIPBlock", "delete PodIPBlock":
			if b.CiliumNode().ResourceVersion == version {
				b.T.Error("the block goes though an old patch could still publish it")
			}
		}
		before(call)
	}
}

// A block is released only after the CiliumNode has changed since the block began to cool down,
// so that every older patch of it conflicts.
func TestReconcileReleasesAfterTheCiliumNodeMoved(t *testing.T) {
	t.Run("it is moved first", func(t *testing.T) {
		b := cooled(t, "10.0.0.12/30")
		b.fenced()
		b.settle()
		b.hasPhases("released", "10.0.0.0/29 InService")
	})
	t.Run("it is moved after the block began to cool down, not before", func(t *testing.T) {
		cn := using(publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29"), "10.0.0.1"), "10.0.0.1") // five more to publish
		b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), cn,
			inService("10.0.0.0/29"), fixtures.BeingDeleted(fixtures.BlockObject("10.0.0.12/30", ipalloc.Draining)))
		b.fenced()
		b.settle()
		b.settleAt(time.Hour)
		b.hasPhases("released", "10.0.0.0/29 InService")
	})
	withEachWrite(t, 4, func(t *testing.T, fail func(*bed), restart bool) {
		b := cooled(t, "10.0.0.12/30")
		b.fenced()
		fail(b)
		for range 4 {
			_, _ = b.reconcile() // fails once
		}
		if restart {
			b.restart()
		}
		b.settle()
		b.hasPhases("released", "10.0.0.0/29 InService")
	})
}

// The CiliumNode of a Node that reappears while the operator checks whether it is gone is left
// alone, and so is one that an agent of a new Node takes over.
func TestReconcileNodeGone(t *testing.T) {
	const served = "blocks 10.0.0.0/30; lists 10.0.0.0/30; pool 10.0.0.1"
	newCase := func(t *testing.T) *bed {
		return newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1"), inService("10.0.0.0/30"))
	}
	t.Run("its CiliumNode goes, then its block cools down, then goes too", func(t *testing.T) {
		b := newCase(t)
		b.r.Metrics.offered.WithLabelValues("n", "ipv4").Set(3)
		b.settle()
		b.is("blocks 10.0.0.0/30 CoolingDown; no CiliumNode")
		if left := fakeapi.Series(t, b.r.Metrics.offered); len(left) > 0 {
			t.Errorf("a Node that is gone offers %v", left)
		}
		if got := b.block("10.0.0.0/30").Reason; got != expand.NodeGone {
			t.Errorf("it cools down as %s", got)
		}
		b.settleAt(fixtures.Defaults().NodeGoneCooldown - time.Second)
		b.block("10.0.0.0/30")
		b.settleAt(fixtures.Defaults().NodeGoneCooldown + time.Second)
		b.is("no CiliumNode")
	})
	t.Run("the Node is there after all", func(t *testing.T) {
		b := newCase(t)
		b.once("get CiliumNode", func() { b.must(b.API.Create(t.Context(), fixtures.Node())) })
		b.step()
		b.is(served)
	})
	t.Run("an agent takes it over after the Node was read", func(t *testing.T) {
		b := newCase(t)
		b.once("get Node", func() { b.agentWrites(`{"metadata":{"labels":{"new":"node"}}}`) })
		b.step()
		b.is(served)
	})
	t.Run("another finalizer keeps it", func(t *testing.T) {
		b := newCase(t)
		cn := b.raw()
		cn.Finalizers = []string{"example.com/keep"}
		b.must(b.API.Update(t.Context(), cn))
		if calls := b.step(); !slices.Contains(calls, "delete CiliumNode") {
			t.Errorf("calls %v", calls)
		}
		b.makesNoProgress("example.com/keep")
		b.is(served)
		cn = b.raw()
		cn.Finalizers = nil
		b.must(b.API.Update(t.Context(), cn))
		b.settle()
		b.is("blocks 10.0.0.0/30 CoolingDown; no CiliumNode")
	})
	t.Run("a paused operator leaves it", func(t *testing.T) {
		b := newCase(t)
		b.r.Cluster.Paused = true
		b.writesNothing("paused")
	})
}

// Pods that hang before they have an address keep coming: the block says so, and leaves after a while.
func TestDrainBesidePodsThatHang(t *testing.T) {
	o := inService("10.0.0.8/30")
	o.Spec.Drain = new(true)
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), inService("10.0.0.0/29"), o,
		publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29", "10.0.0.8/30"), append(hosts("10.0.0.0/29"), hosts("10.0.0.8/30")...)...))
	b.settleAgent()
	b.reports("10.0.0.1", "10.0.0.2")
	var waits []string
	for minute := 0; minute <= 20; minute += 5 {
		if minute > 0 { // activeDeadlineSeconds
			b.r.Cluster.Pods.Delete(podOn(fmt.Sprint("cron-", minute-5)).PodKey, b.Clock.Now())
		}
		b.r.Cluster.Pods.Set(podOn(fmt.Sprint("cron-", minute)), fixtures.Noon().Add(time.Duration(minute)*time.Minute))
		b.settleAt(time.Duration(minute) * time.Minute)
		if wait := b.object("10.0.0.8-30").Status.WaitsFor; wait != nil {
			waits = append(waits, wait.Reason+": "+wait.Message)
		}
	}
	pod := "PodAddress: the addresses of new pods default/cron-0"
	if diff := cmp.Diff([]string{pod, pod, pod, pod, "Handshake: the agent of n to agree, and for a moment after that"}, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	b.agentIs(func(cn *ciliumv2.CiliumNode) {
		for ip := range cn.Status.IPAM.ReleaseIPs {
			cn.Status.IPAM.ReleaseIPs[ip] = "ready-for-release"
		}
	})
	b.settle()
	b.settleAfter(time.Minute)
	if is := b.object("10.0.0.8-30").Status; is.Phase != v1alpha1.PhaseCoolingDown || is.WaitsFor != nil {
		t.Errorf("the block is %s and waits for %v", is.Phase, is.WaitsFor)
	}
}
