package node

import (
	"errors"
	"maps"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func (b *bed) has(cidr string) bool {
	b.T.Helper()
	for _, k := range b.Blocks() {
		if k.CIDR == fixtures.Prefix(cidr) {
			return true
		}
	}
	return false
}

// block returns the block of a CIDR, which must exist.
func (b *bed) block(cidr string) crd.Block {
	b.T.Helper()
	for _, k := range b.Blocks() {
		if k.CIDR == fixtures.Prefix(cidr) {
			return k
		}
	}
	b.T.Fatalf("block %s is not among %+v", cidr, b.Blocks())
	return crd.Block{}
}

// moved records that the CiliumNode has changed since a block began to cool down.
func (b *bed) moved(cidr string) {
	b.T.Helper()
	held, ok := b.r.Ledger.Block(fixtures.Prefix(cidr))
	if !ok {
		b.T.Fatalf("no block %s", cidr)
	}
	b.r.Ledger.MarkFenced(held)
}

// resting is node n with all it needs, and a block that has cooled down.
func resting(t *testing.T) *bed {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"),
		fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"),
		fixtures.BlockObject("10.0.0.0/29", ipalloc.InService), fixtures.BlockObject("10.0.0.12/30", ipalloc.CoolingDown))
	b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
	b.moved("10.0.0.12/30")
	return b
}

// A block that changes between the two writes that release it stays.
func TestReconcileDeletesNoBlockThatChanged(t *testing.T) {
	b := resting(t)
	tried := false
	b.Before = func(call string) {
		if call != "delete PodIPBlock" {
			return
		}
		b.Before = func(string) {}
		tried = true
		obj := &v1alpha1.PodIPBlock{}
		if err := b.API.Get(t.Context(), types.NamespacedName{Name: "10.0.0.12-30"}, obj); err != nil {
			t.Fatal(err)
		}
		crd.SetBlockPhase(obj, ipalloc.InService, expand.None, "x", fixtures.Noon())
		if err := b.API.Status().Update(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.reconcile(); err != nil { // it loses
		t.Fatal(err)
	}
	if !tried || !b.has("10.0.0.12/30") {
		t.Errorf("tried %t, and the block is there: %t; want both", tried, b.has("10.0.0.12/30"))
	}
}

// If another finalizer keeps a block's object, the block stays taken until that is gone, and is
// not written to any more.
func TestReconcileWaitsForAnotherFinalizer(t *testing.T) {
	b := resting(t)
	obj := &v1alpha1.PodIPBlock{}
	if err := b.API.Get(t.Context(), types.NamespacedName{Name: "10.0.0.12-30"}, obj); err != nil {
		t.Fatal(err)
	}
	obj.Finalizers = append(obj.Finalizers, "example.com/record")
	if err := b.API.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	b.moved("10.0.0.12/30")
	b.settle()
	if err := b.API.Get(t.Context(), types.NamespacedName{Name: "10.0.0.12-30"}, obj); err != nil {
		t.Fatal(err)
	}
	if obj.DeletionTimestamp == nil || len(obj.Finalizers) != 1 {
		t.Errorf("deleted %v, with finalizers %v; want it deleted, with the other finalizer alone", obj.DeletionTimestamp, obj.Finalizers)
	}
	if _, held := b.r.Ledger.Block(fixtures.Prefix("10.0.0.12/30")); !held {
		t.Error("the block's addresses are free, though its object is there")
	}
}

// A block stays while its CiliumNode, read live, still names any of its addresses, in any
// notation: the agent assigns those as well. It also stays if the CiliumNode is another one.
func TestReconcileReleasesNothingThatIsPublished(t *testing.T) {
	tests := map[string]string{
		"an address":           `{"spec":{"ipam":{"pool":{"10.0.0.13":{}}}}}`,
		"a key in an odd form": `{"spec":{"ipam":{"pool":{"::ffff:10.0.0.13":{}}}}}`,
		"a podCIDR":            `{"spec":{"ipam":{"podCIDRs":["10.0.0.0/29","10.0.0.12/30"]}}}`,
		"created again":        "",
	}
	for name, patch := range tests {
		t.Run(name, func(t *testing.T) {
			b := resting(t)
			b.Lag()
			cn := fixtures.CiliumNode("n", "")
			if patch != "" {
				if err := b.API.Patch(t.Context(), cn, fakeapi.RawMerge(patch)); err != nil {
					t.Fatal(err)
				}
			} else if err := errors.Join(b.API.Delete(t.Context(), cn), b.API.Create(t.Context(), cn)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.reconcile(); err != nil {
				t.Fatal(err)
			}
			if !b.has("10.0.0.12/30") {
				t.Error("the block was released")
			}
		})
	}
}

// The fence for a released block does not mark an address that an overlapping block, still in
// service, contains.
func TestReconcileMarksNothingOfAnOverlappingBlock(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"),
		fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"),
		fixtures.BlockObject("10.0.0.0/29", ipalloc.InService), fixtures.BlockObject("10.0.0.4/30", ipalloc.CoolingDown))
	b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
	for range 5 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		for addr := range b.CiliumNode().Release {
			if fixtures.Prefix("10.0.0.0/29").Contains(addr) {
				t.Fatalf("%s, which serves, is marked", addr)
			}
		}
	}
	if b.has("10.0.0.4/30") {
		t.Error("the block that overlaps was not released")
	}
}

// A block cools down for as long as its reason requires, whether or not its pool exists.
func TestReconcileCoolsDownByReason(t *testing.T) {
	tests := map[string]struct {
		pool   string
		reason expand.Reason
		want   time.Duration
	}{
		"returned":                      {"p", expand.Returned, time.Minute},
		"its node is gone":              {"p", expand.NodeGone, 10 * time.Minute},
		"returned, pool gone":           {"x", expand.Returned, time.Minute},
		"its node is gone, and so pool": {"x", expand.NodeGone, 10 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cooling := fixtures.BlockObject("10.0.0.12/30", ipalloc.CoolingDown)
			cooling.Spec.PoolName = test.pool
			crd.SetBlockPhase(cooling, ipalloc.CoolingDown, test.reason, "x", fixtures.Noon())
			b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), cooling)
			b.Clock.SetTime(fixtures.Noon().Add(test.want - time.Second))
			b.settle()
			if !b.has("10.0.0.12/30") {
				t.Fatal("it cooled down too briefly")
			}
			b.Clock.SetTime(fixtures.Noon().Add(test.want))
			b.settle()
			if b.has("10.0.0.12/30") {
				t.Error("it is still there")
			}
		})
	}
}

// While the cache lags behind our last write to a CiliumNode, no decision is made.
func TestReconcileWaitsForItsOwnLastWrite(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Publishing(fixtures.CiliumNode("n", "")))
	b.Lag()
	if calls, err := b.reconcile(); err != nil || len(fakeapi.WritesOf(calls)) == 0 {
		t.Fatalf("calls %v, %v", calls, err)
	}
	if calls, err := b.reconcile(); err != nil || len(calls) > 0 {
		t.Errorf("calls %v, %v; want none", calls, err)
	}
	b.Lags = false
	if calls, err := b.reconcile(); err != nil || len(calls) > 0 {
		t.Errorf("once it is shown: calls %v, %v; want none", calls, err)
	}
}

// The condition is written before the addresses of a block are marked and the agent's own
// addresses retired.
func TestReconcileDrainsBeforeItMarks(t *testing.T) {
	cn := fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30", "10.0.0.4/30"), "10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.0.6")
	cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1")
	cn.Spec.HealthAddressing.IPv4 = "10.0.0.6"
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Spec.Expand.MinFree = new(int32)
	gone := fixtures.BeingDeleted(fixtures.BlockObject("10.0.0.4/30", ipalloc.InService))
	b := newBed(t, fixtures.Node(), pool, cn, fixtures.BlockObject("10.0.0.0/30", ipalloc.InService), gone)
	b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
	b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
	marked := false
	b.Before = func(call string) {
		if call != "patch CiliumNode status" || marked {
			return
		}
		marked = true
		for _, k := range b.Blocks() {
			if k.CIDR == fixtures.Prefix("10.0.0.4/30") && k.Phase != ipalloc.Draining {
				t.Errorf("marks in phase %s", k.Phase)
			}
		}
	}
	for range 5 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if !marked {
		t.Error("nothing was marked")
	}
	want := map[netip.Addr]expand.ReleaseStatus{fixtures.Addrs("10.0.0.5")[0]: expand.Marked, fixtures.Addrs("10.0.0.6")[0]: expand.Released}
	if got := b.CiliumNode().Release; !maps.Equal(got, want) {
		t.Errorf("entries are %v, want %v", got, want)
	}
}
