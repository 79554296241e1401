package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
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
	const want = "blocks 10.0.0.0/30 10.0.0.4/30; lists 10.0.0.0/30 10.0.0.4/30"
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

// returned is node n after its agent returned 10.0.0.4/30.
func returned(t *testing.T) *bed {
	return poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"), inService("10.0.0.0/30"), inService("10.0.0.4/30"))
}

// A block that the agent returned cools down, and is released only after the CiliumNode has
// changed since, whichever write is the last one.
func TestMultiPoolReturnedBlockCoolsDown(t *testing.T) {
	const left = "blocks 10.0.0.0/30; lists 10.0.0.0/30"
	b := returned(t)
	b.fenced()
	b.settle()
	b.is("blocks 10.0.0.0/30 10.0.0.4/30 CoolingDown; lists 10.0.0.0/30")
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

// Where the agent has returned all blocks of a Cilium pool, an entry without CIDRs has it forget them, once. After that
// write nothing is written to the CiliumNode before they are released.
func TestMultiPoolForgetsReturnedBlocks(t *testing.T) {
	b := poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"),
		inService("10.0.0.0/30"), blueBlock("10.8.0.0/30"))
	b.settle()
	if entries := b.raw().Spec.IPAM.Pools.Allocated; len(entries) != 2 || entries[0].Pool != "blue" || len(entries[0].CIDRs) > 0 {
		t.Errorf("the agent's list is %+v, want an empty entry of blue in it", entries)
	}
	b.agentWrites(allocates("10.0.0.0/30"))
	version := b.raw().ResourceVersion
	b.settleAfter(time.Minute + time.Second)
	b.is("blocks 10.0.0.0/30; lists 10.0.0.0/30")
	if got := b.raw().ResourceVersion; got != version {
		t.Errorf("the CiliumNode was written again: version %s, not %s", got, version)
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
			want: "blocks 10.0.0.8/30; lists 10.0.0.8/30",
			mode: ciliumnode.MultiPool, objects: []client.Object{fixtures.Pooled(2, "10.0.0.8/30")},
		},
		"all CIDRs that CiliumNodes name, in any field, are taken": {
			want: "blocks 10.0.0.12/30; lists 10.0.0.12/30",
			mode: ciliumnode.MultiPool, objects: []client.Object{named},
		},
		// In a block that is listed whole no address can be withheld, so a block with a reserved
		// address is not assigned, even if only the remainder is to be published.
		"a reserved address keeps its block": {mode: ciliumnode.MultiPool, objects: []client.Object{reserving}, want: "blocks 10.0.0.4/30 10.0.0.8/30; lists 10.0.0.4/30 10.0.0.8/30"},
		"unless addresses are published alone": {
			objects: []client.Object{reserving},
			want:    "blocks 10.0.0.0/30 10.0.0.4/30 10.0.0.8/30; lists 10.0.0.0/30 10.0.0.4/30 10.0.0.8/30; pool 10.0.0.10 10.0.0.2 10.0.0.5 10.0.0.6 10.0.0.9",
		},
		// The watch may lag behind another process's write.
		"an old list is not believed": {
			want: "blocks 10.0.0.0/30 10.0.0.4/30; lists 10.0.0.0/30 10.0.0.4/30",
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
	b.is("blocks 10.0.0.0/30 10.0.0.8/30; lists 10.0.0.0/30 10.0.0.8/30")
}

// blueBed is node n, with an agent that has its requests from the default pool, and a pool that
// serves the Cilium pool blue.
func blueBed(t *testing.T) *bed {
	return poolBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/28"), fixtures.Pooled(2, "10.0.0.0/30"), inService("10.0.0.0/30"))
}

// blueBlock is a block of bluePool on node n.
func blueBlock(cidr string) *v1alpha1.PodIPBlock {
	b := inService(cidr)
	b.Spec.PoolName = "blues"
	return b
}

const asksBlue = `{"spec":{"ipam":{"pools":{"requested":[{"pool":"blue","needed":{"ipv4-addrs":3}},{"pool":"default","needed":{"ipv4-addrs":2}}]}}}}`

// The PodIPPools that serve a Cilium pool satisfy an agent's request for it, and the blocks are
// listed under its name. The default pool keeps its own needs and blocks.
func TestCiliumPools(t *testing.T) {
	first, blue := inService("10.0.0.0/30"), fixtures.BluePool("10.8.0.0/28")
	asks := func(b *bed) { b.agentWrites(asksBlue) }
	held := fixtures.BluePool("10.8.0.0/28")
	held.Spec.IPv4.CIDRs[0].AllocationPolicy, held.Spec.Maintenance = v1alpha1.AllocationDrain, fixtures.Nightly()
	mine := crd.NewBlock(fixtures.Prefix("10.8.0.0/30"), "blues", "n", "node-uid")
	mine.UID = "uid-blue"
	for name, test := range map[string]scenario{
		"no agent requests it": {objects: []client.Object{blue, fixtures.Pooled(2, "10.0.0.0/30"), first}, want: "blocks 10.0.0.0/30; lists 10.0.0.0/30"},
		"an agent requests it": {
			objects: []client.Object{blue, fixtures.Pooled(2, "10.0.0.0/30"), first}, given: asks,
			want: "blocks 10.0.0.0/30 10.8.0.0/30 10.8.0.4/30; lists 10.0.0.0/30; lists blue 10.8.0.0/30 10.8.0.4/30",
		},
		"a pod requests it, before its agent knows of it": {
			objects: []client.Object{blue, fixtures.Pooled(2, "10.0.0.0/30"), first},
			given: func(b *bed) {
				pod := fixtures.Pod("web", "web", "n")
				pod.Annotations = map[string]string{"ipam.cilium.io/ip-pool": "blue"}
				b.r.Cluster.Pods.Set(state.ReadPodWithRequest(pod), fixtures.Noon())
			},
			want: "blocks 10.0.0.0/30 10.8.0.0/30; lists 10.0.0.0/30; lists blue 10.8.0.0/30",
		},
		"a full one takes from no other": {
			objects: []client.Object{fixtures.BluePool("10.8.0.0/30"), fixtures.Pooled(2, "10.0.0.0/30"), first}, given: asks,
			want: "blocks 10.0.0.0/30 10.8.0.0/30; lists 10.0.0.0/30; lists blue 10.8.0.0/30",
		},
		// Only the plan of a block's own Cilium pool reports why its drain has not begun. The plans of
		// other pools would keep clearing it.
		"a drain waits in one": {
			objects: []client.Object{held, fixtures.Listing("10.8.0.0/30"), first, blueBlock("10.8.0.0/30")}, given: asks,
			want: "blocks 10.0.0.0/30 10.8.0.0/30 held; lists 10.0.0.0/30; lists blue 10.8.0.0/30",
		},
		"a recreated CiliumNode lists the blocks of each": {
			objects: []client.Object{fixtures.PodIPPool("p", 1, "10.0.0.0/27"), blue, first, inService("10.0.0.4/30"), mine},
			want:    "blocks 10.0.0.0/30 10.0.0.4/30 10.8.0.0/30; lists 10.0.0.0/30 10.0.0.4/30; lists blue 10.8.0.0/30",
		},
		// A recreated PodIPPool may serve another one: listed blocks stay where the agent has them.
		"its pool serves another now": {
			objects: []client.Object{blue, fixtures.Listing("10.8.0.0/30"), first, blueBlock("10.8.0.0/30")},
			given: func(b *bed) {
				green := fixtures.BluePool("10.8.0.0/28")
				green.UID, green.Spec.CiliumPoolName = "made-again", "green"
				b.r.Cluster.Pools.Delete(green.Name)
				b.r.Cluster.Pools.Set(green)
			},
			want: "blocks 10.0.0.0/30 10.8.0.0/30; lists 10.0.0.0/30; lists blue 10.8.0.0/30",
		},
		// A block of an unknown Cilium pool is listed under none, not even the default one. It waits for
		// the pod whose status names it, and delays nothing else. Its pods are no demand of the default
		// pool: the agent could not use another block for them and would return each one.
		"no pool of a block": {
			objects: []client.Object{fixtures.Pooled(2, "10.0.0.0/30"), first, inService("10.0.0.4/30"), blueBlock("10.8.0.0/28")},
			given: func(b *bed) {
				for i := range 5 {
					b.r.Cluster.Pods.Set(podOn(fmt.Sprintf("x%d", i), fmt.Sprintf("10.8.0.%d", i+1)), fixtures.Noon())
				}
				b.settle()
				b.at(time.Hour)
			},
			want: "blocks 10.0.0.0/30 10.8.0.0/28 Draining; lists 10.0.0.0/30",
		},
		"no pool of a block of a forgotten CiliumNode": {
			objects: []client.Object{blueBlock("10.8.0.0/28")},
			given:   func(b *bed) { b.r.Cluster.Pods.Set(podOn("x", "10.8.0.1"), fixtures.Noon()) },
			want:    "blocks 10.0.0.0/30 10.0.0.4/30 10.8.0.0/28 Draining; lists 10.0.0.0/30 10.0.0.4/30",
		},
	} {
		test.mode, test.settles = ciliumnode.MultiPool, true
		runScenarios(t, map[string]scenario{name: test})
	}
	t.Run("its pool goes during a claim", func(t *testing.T) {
		b := blueBed(t)
		asks(b)
		b.once("create PodIPBlock", func() { b.r.Cluster.Pools.Delete("blues") })
		b.step()
		b.listsOnly("10.0.0.0/30")
	})
	for _, mode := range []ciliumnode.Mode{ciliumnode.CRD, ciliumnode.Kubernetes} {
		t.Run("served in "+mode.String()+" mode", func(t *testing.T) {
			newBedIn(t, mode, fixtures.Node(), fixtures.BluePool("10.8.0.0/28")).settled()
		})
	}
}

// A family that the CiliumPodIPPool lacks is listed for no agent that may announce it by BGP: Cilium's agents
// (pkg/bgp/manager/reconciler/pod_ip_pool.go, v1.20.2) end at such a CIDR.
func TestMultiPoolListsNoFamilyThatCiliumPoolLacks(t *testing.T) {
	dual := fixtures.Edited(fixtures.PodIPPool("p", 1, "10.0.0.0/28"), func(s *v1alpha1.PodIPPoolSpec) {
		s.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 124, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/112"}}}
	})
	for name, test := range map[string]struct {
		data   map[string]string
		listed bool
	}{
		"BGP is on":              {data: map[string]string{"enable-bgp-control-plane": "true"}},
		"BGP is off":             {data: map[string]string{}, listed: true},
		"settings are not known": {},
	} {
		t.Run(name, func(t *testing.T) {
			b := poolBed(t, fixtures.Node(), dual, fixtures.Pooled(2, "10.0.0.0/30"), inService("10.0.0.0/30"))
			b.r.Cluster.CiliumPools = state.NewCiliumPools()
			b.r.Cluster.CiliumPools.Set(ciliumpool.Read(fixtures.HandMade(fixtures.CiliumPodIPPool("default", 30))))
			b.r.Cluster.CiliumPools.SetKnown()
			b.r.Cluster.Cilium = &ciliumconfig.Latest{}
			if test.data != nil {
				b.r.Cluster.Cilium.Set(&ciliumconfig.Config{Known: true, Data: test.data})
			}
			b.agentWrites(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":2,"ipv6-addrs":8}}]}}}}`)
			b.settle()
			six := slices.ContainsFunc(b.CiliumNode().Of("").PodCIDRs, func(cidr netip.Prefix) bool { return cidr.Addr().Is6() })
			if six != test.listed {
				t.Errorf("IPv6 is listed: %t, for a CiliumPodIPPool without", six)
			}
		})
	}
}
