package node

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// parkBed is node n with two blocks of 6 addresses: a staying one, and one that was deleted while a
// pod has an address in it.
func parkBed(t *testing.T) *bed {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), fixtures.Pooled(2, "10.0.0.0/30", "10.0.0.4/30"),
		inService("10.0.0.0/30"), fixtures.BeingDeleted(inService("10.0.0.4/30")))
	b.park("c")
	return b
}

// park makes the operator park blocks; the agent has run in this container for an hour.
func (b *bed) park(container string) {
	b.r.Cluster.ParkBlocks = true
	b.r.Cluster.Agents.Set(state.ReadAgent(fixtures.AgentPod("agent", container, true)), b.Clock.Now().Add(-time.Hour))
	b.podAt("old", "10.0.0.5", -time.Hour)
}

// podAt adds a pod of node n, created this long from now. An empty addr stands for none yet.
func (b *bed) podAt(name, addr string, created time.Duration) {
	pod := fixtures.Pod(name, name, "n", strings.Fields(addr)...)
	pod.CreationTimestamp = metav1.NewTime(b.Clock.Now().Add(created))
	b.r.Cluster.Pods.Set(state.ReadPodWithRequest(pod), b.Clock.Now())
}

// later reconciles node n a little later and returns the writes.
func (b *bed) later() []string {
	b.T.Helper()
	b.Clock.SetTime(b.Clock.Now().Add(time.Second))
	return fakeapi.WritesOf(b.step())
}

// parked returns the CIDRs of node n that are parked.
func (b *bed) parked() []netip.Prefix { return b.CiliumNode().Parked() }

// closedBy returns which run of an agent has closed the draining block.
func (b *bed) closedBy() string {
	b.T.Helper()
	return b.block("10.0.0.4/30").Closed.Agent
}

// A draining block is parked, listed again, and recorded as closed.
func TestParks(t *testing.T) {
	b := parkBed(t)
	steps := []struct {
		writes []string
		parked int
		closed string
	}{
		{writes: []string{"update PodIPBlock status"}},
		{writes: []string{"patch CiliumNode"}, parked: 1},
		{writes: []string{"patch CiliumNode"}},
		{writes: []string{"update PodIPBlock status"}, closed: "c"},
		{closed: "c"},
	}
	for i, want := range steps {
		if writes := b.later(); !slices.Equal(writes, want.writes) {
			t.Fatalf("step %d: writes %v, want %v", i, writes, want.writes)
		}
		if n := len(b.parked()); n != want.parked || len(b.listed()) != 2 {
			t.Errorf("step %d: parked %v, listed %v", i, b.parked(), b.listed())
		}
		if want.parked > 0 { // for a second
			b.writesNothing("at once")
		}
		if got := b.closedBy(); got != want.closed {
			t.Errorf("step %d: closed by %q, want %q", i, got, want.closed)
		}
	}
	b.Check("at the end")

	b.restart() // no further step
	b.park("c")
	for range 3 {
		if writes := b.later(); len(writes) > 0 {
			t.Errorf("a new leader writes %v", writes)
		}
	}
}

// The agent may answer before the operator sees its own write.
func TestAgentAnswersAtOnce(t *testing.T) {
	b := parkBed(t)
	for len(b.parked()) == 0 {
		b.later()
	}
	b.agentWrites(`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":["10.0.0.0/30","10.0.0.4/30"]}]}}}}`)
	b.later()
	if got := b.closedBy(); got != "c" || len(b.parked()) > 0 {
		t.Errorf("closed by %q, want c; parked %v", got, b.parked())
	}
}

// An operator that starts later finds that a pod waits beside a closed block: the node gets another. The
// pod's address there shows that it was true.
func TestInfersClosed(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), fixtures.Pooled(2, "10.0.0.4/30"), inService("10.0.0.4/30"))
	b.park("c")
	b.podAt("new", "", -time.Hour)
	minutes := 0
	for ; minutes < 63; minutes++ {
		b.Clock.SetTime(b.Clock.Now().Add(time.Minute))
		b.step()
		if closed := b.block("10.0.0.4/30").Closed; closed.Inferred != (minutes >= 61) {
			t.Errorf("after %d minutes: closed %+v", minutes, closed)
		}
	}
	b.is("blocks 10.0.0.0/30 10.0.0.4/30; lists 10.0.0.0/30 10.0.0.4/30")
	b.podAt("new", "10.0.0.1", -time.Hour-time.Duration(minutes)*time.Minute)
	b.settle()
	if closed := b.block("10.0.0.4/30").Closed; closed.Agent != "c" || closed.Inferred {
		t.Errorf("confirmed: closed %+v", closed)
	}
}

// Of two blocks that drain for two Cilium pools, one is parked at a time.
func TestParksOneAtATime(t *testing.T) {
	cn := fixtures.Listing("10.8.0.0/30")
	cn.Spec.IPAM.Pools.Allocated[1].CIDRs = append(cn.Spec.IPAM.Pools.Allocated[1].CIDRs, fixtures.PodCIDR("10.0.0.4/30"))
	blue := fixtures.BeingDeleted(inService("10.8.0.0/30"))
	blue.Spec.PoolName = "blues"
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), fixtures.BluePool("10.8.0.0/28"), cn, blue,
		inService("10.0.0.0/30"), fixtures.BeingDeleted(inService("10.0.0.4/30")))
	b.park("c")
	b.podAt("blue", "10.8.0.1", -time.Hour)
	most := 0
	for range 12 {
		b.later()
		most = max(most, len(b.parked()))
	}
	closed := 0
	for _, block := range b.Blocks() {
		if block.Closed.Agent == "c" {
			closed++
		}
	}
	if most != 1 || closed != 2 {
		t.Errorf("%d parked at most, %d blocks closed; want 1 and 2", most, closed)
	}
}

// Whichever write is the last one, or loses its response, the CIDR stays listed throughout, and the
// block is closed in the end.
func TestParkSurvivesEveryWrite(t *testing.T) {
	withEachWrite(t, 4, func(t *testing.T, fail func(*bed), restart bool) {
		b := parkBed(t)
		fail(b)
		for failed := false; !failed; {
			b.Clock.SetTime(b.Clock.Now().Add(time.Second))
			_, err := b.reconcile()
			failed = err != nil
		}
		if restart {
			b.restart()
			b.park("c")
		}
		for range 8 {
			b.later()
			if len(b.listed()) != 2 {
				t.Fatalf("listed %v", b.listed())
			}
		}
		if got := b.closedBy(); got != "c" || len(b.parked()) > 0 {
			t.Errorf("closed by %q, parked %v", got, b.parked())
		}
		b.Check("at the end")
	})
}

// A parked CIDR whose block is torn away after its pool lost the range is foreign: it is listed
// again, or its pods lost their network once the agent restarts, and no other block was parked.
func TestParkedBlockTornAway(t *testing.T) {
	b := parkBed(t)
	for len(b.parked()) == 0 {
		b.later()
	}
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/30")
	pool.Generation++
	b.r.Cluster.Pools.Set(pool)
	gone, object := b.block("10.0.0.4/30"), b.object(crd.BlockName(fixtures.Prefix("10.0.0.4/30")))
	object.Finalizers = nil
	b.must(b.API.Update(b.T.Context(), object))
	b.r.Cluster.Ledger.Remove(gone)
	for range 5 {
		b.later()
	}
	b.is("blocks 10.0.0.0/30; lists 10.0.0.0/30 10.0.0.4/30")
	if parked := b.parked(); len(parked) > 0 {
		t.Errorf("parked %v", parked)
	}
}

// An agent that takes parked blocks back has each parked twice. The block says why it stays in use.
func TestStopsFruitlessParkings(t *testing.T) {
	b := parkBed(t)
	parkings := 0
	isParked := false
	for second := range 300 {
		switch second {
		case 30:
			b.podAt("new", "10.0.0.6", 0)
		case 90:
			b.podAt("newer", "10.0.0.4", 0)
		}
		b.later()
		if !isParked && len(b.parked()) > 0 {
			parkings++
		}
		isParked = len(b.parked()) > 0
	}
	block := b.block("10.0.0.4/30")
	if parkings != 2 || block.Closed.Fruitless != 2 || block.Closed.By("c") {
		t.Errorf("parked %d times, closed %+v", parkings, block.Closed)
	}
	if wait := b.object(crd.BlockName(block.CIDR)).Status.WaitsFor; wait == nil || wait.Reason != string(expand.WaitNewPods) {
		t.Errorf("waits for %+v", wait)
	}
	b.writesNothing("at the end")
}
