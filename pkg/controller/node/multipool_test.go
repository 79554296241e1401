package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func poolBed(t *testing.T, objects ...client.Object) *bed {
	t.Helper()
	return newBedIn(t, ciliumnode.MultiPool, objects...)
}

// allocates is a patch of an agent that has these CIDRs of the default pool.
func allocates(cidrs ...string) string {
	return `{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":["` + strings.Join(cidrs, `","`) + `"]}]}}}}`
}

func TestMultiPoolFirstBlocks(t *testing.T) {
	const want = "blocks 10.0.0.0/30 InService 10.0.0.4/30 InService; lists 10.0.0.0/30 10.0.0.4/30"
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	if diff := cmp.Diff([]string{"create CiliumNode", "create PodIPBlock", "create PodIPBlock", "patch CiliumNode"}, b.step()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	b.is(want)
	if cn := b.raw(); len(cn.Spec.IPAM.Pool)+len(cn.Spec.IPAM.PodCIDRs) > 0 {
		t.Errorf("fields of crd mode are written: %v %v", cn.Spec.IPAM.Pool, cn.Spec.IPAM.PodCIDRs)
	}
	b.Check("at the end")
	b.settled()
	survivesEveryWrite(t, ciliumnode.MultiPool, 4, want)
}

func TestMultiPoolGrowsAsAsked(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"), inService("10.0.0.0/30"))
	b.settle()
	b.is("blocks 10.0.0.0/30 InService; lists 10.0.0.0/30")
	b.agentWrites(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":5}}]}}}}`)
	b.settle()
	b.listsOnly("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30")
	b.Check("at the end")
}

// returned is node n after its agent returned 10.0.0.4/30.
func returned(t *testing.T) *bed {
	return poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"), inService("10.0.0.0/30"), inService("10.0.0.4/30"))
}

// A block that the agent returned cools down, and is released only after the CiliumNode has
// changed since, whichever write is the last one.
func TestMultiPoolReturnedBlockCoolsDown(t *testing.T) {
	const left = "blocks 10.0.0.0/30 InService; lists 10.0.0.0/30"
	b := returned(t)
	b.fenced()
	b.settle()
	b.is("blocks 10.0.0.0/30 InService 10.0.0.4/30 CoolingDown; lists 10.0.0.0/30")
	b.settleAfter(time.Minute + time.Second)
	if b.has("10.0.0.4/30") {
		t.Errorf("it is still there: %+v", b.Blocks())
	}
	b.settleAfter(time.Hour)
	b.is(left)
	withEachWrite(t, 6, func(t *testing.T, fail func(*bed), restart bool) {
		b := returned(t)
		b.fenced()
		fail(b)
		for range 3 {
			_, _ = b.reconcile() // fails once
		}
		b.at(time.Minute + time.Second)
		for range 4 {
			_, _ = b.reconcile()
		}
		b.Fate = func(string) fakeapi.Fate { return fakeapi.Done }
		if restart {
			b.restart()
		}
		b.settleAfter(time.Hour)
		b.is(left)
	})
}

// A leader that was paused before it sent the patch resumes after the block went to another node,
// although the CiliumNode has not changed otherwise.
func TestMultiPoolLateLeaderLoses(t *testing.T) {
	b := returned(t)
	old := b.CiliumNode()
	b.restart()
	b.settle()
	b.settleAt(time.Hour)
	if b.has("10.0.0.4/30") {
		t.Fatal("the block is still the node's")
	}
	late := ciliumnode.Change{Publish: fixtures.Addrs("10.0.0.5"), Blocks: fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30")}
	if _, err := b.r.CiliumNodes.Apply(t.Context(), old, late); !apierrors.IsConflict(err) {
		t.Errorf("the late patch: %v, want a conflict", err)
	}
}

// An agent that lists a cooling-down block again gets it back, also if no pool serves the node any
// more.
func TestMultiPoolTakenBackWhileItCoolsDown(t *testing.T) {
	for _, served := range []bool{true, false} {
		t.Run(fmt.Sprintf("served %t", served), func(t *testing.T) {
			b := returned(t)
			b.settle()
			if !served {
				pool := elsewherePool()
				pool.Generation = 2
				b.r.Pools.Set(pool)
			}
			b.agentWrites(allocates("10.0.0.0/30", "10.0.0.4/30"))
			b.settle()
			b.settleAt(time.Hour)
			b.is("blocks 10.0.0.0/30 InService 10.0.0.4/30 InService; lists 10.0.0.0/30 10.0.0.4/30")
		})
	}
}

func TestMultiPool(t *testing.T) {
	named := fixtures.CiliumNode("m", "", "10.0.0.4/30")
	named.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: "blue", CIDRs: fixtures.Pooled(0, "10.0.0.0/30").Spec.IPAM.Pools.Allocated[0].CIDRs}}
	named.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.9")
	reserving := fixtures.Edited(fixtures.PodIPPool("p", 1, "10.0.0.0/28"), func(s *v1alpha1.PodIPPoolSpec) {
		s.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.1/32"}, {CIDR: "10.0.0.7/32"}} // the latter is an edge, which no pod gets
		s.ReservedBlockPolicy = v1alpha1.PublishRemainder
	})
	runScenarios(t, map[string]scenario{
		"a block removed by force is recreated": {
			want: "blocks 10.0.0.8/30 InService; lists 10.0.0.8/30",
			mode: ciliumnode.MultiPool, objects: []client.Object{fixtures.Pooled(2, "10.0.0.8/30")},
		},
		"all CIDRs that CiliumNodes name, in any field, are taken": {
			want: "blocks 10.0.0.12/30 InService; lists 10.0.0.12/30",
			mode: ciliumnode.MultiPool, objects: []client.Object{named},
		},
		// In a block that is listed whole no address can be withheld, so a block with a reserved
		// address is not assigned, even if only the remainder is to be published.
		"a reserved address keeps its block":   {mode: ciliumnode.MultiPool, objects: []client.Object{reserving}, want: "blocks 10.0.0.4/30 InService 10.0.0.8/30 InService; lists 10.0.0.4/30 10.0.0.8/30"},
		"unless addresses are published alone": {objects: []client.Object{reserving}, want: "blocks 10.0.0.0/30 InService 10.0.0.4/30 InService 10.0.0.8/30 InService; lists 10.0.0.0/30 10.0.0.4/30 10.0.0.8/30; pool 10.0.0.10 10.0.0.2 10.0.0.5 10.0.0.6 10.0.0.9"},
		// The watch may lag behind another process's write.
		"an old list is not believed": {
			want: "blocks 10.0.0.0/30 InService 10.0.0.4/30 InService; lists 10.0.0.0/30 10.0.0.4/30",
			mode: ciliumnode.MultiPool, objects: []client.Object{fixtures.Pooled(2, "10.0.0.0/30"), inService("10.0.0.0/30"), inService("10.0.0.4/30")},
			given: func(b *bed) {
				b.Lag()
				b.agentWrites(allocates("10.0.0.0/30", "10.0.0.4/30"))
			},
		},
	})
}

// A block that another node's CiliumNode has come to name since it was claimed cannot be listed.
// The node gets another one in its place, and returns it.
func TestMultiPoolReturnsAClaimNamedElsewhere(t *testing.T) {
	other := fixtures.CiliumNode("m", "")
	other.Spec.Addresses = []ciliumv2.NodeAddress{{Type: addressing.NodeCiliumInternalIP, IP: "10.0.0.5"}}
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(4, "10.0.0.0/30"), other, inService("10.0.0.0/30"), inService("10.0.0.4/30"))
	b.settle()
	b.listsOnly("10.0.0.0/30", "10.0.0.8/30")
	b.settleAfter(time.Hour)
	b.is("blocks 10.0.0.0/30 InService 10.0.0.8/30 InService; lists 10.0.0.0/30 10.0.0.8/30")
}
