package node

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// idleCIDR is the block of pool q on node n, which pool p rules.
const idleCIDR = "10.0.0.8/30"

func rulingPool() *v1alpha1.PodIPPool {
	return fixtures.Edited(fixtures.PodIPPool("p", 1, "10.1.0.0/27"), func(s *v1alpha1.PodIPPoolSpec) { s.Priority, s.IPv4.BlockSize = 10, 28 })
}

// takes are the reasons to take the idle block. Each changes the block, or its pool.
var takes = map[expand.Reason]func(q *v1alpha1.PodIPPool, idle *v1alpha1.PodIPBlock){
	expand.Deleted: func(_ *v1alpha1.PodIPPool, idle *v1alpha1.PodIPBlock) { *idle = *fixtures.BeingDeleted(idle) },
	expand.PoolDeleted: func(q *v1alpha1.PodIPPool, _ *v1alpha1.PodIPBlock) {
		*q = *fixtures.BeingDeleted(fixtures.Finalized(q))
	},
	expand.DrainRequested: func(_ *v1alpha1.PodIPPool, idle *v1alpha1.PodIPBlock) { idle.Spec.Drain = new(true) },
	expand.CIDRDraining: func(q *v1alpha1.PodIPPool, _ *v1alpha1.PodIPBlock) {
		q.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
	},
	expand.NodeUnselected: func(q *v1alpha1.PodIPPool, _ *v1alpha1.PodIPBlock) {
		q.Spec.NodeSelector, q.Spec.UnselectedNodes.Policy = elsewherePool().Spec.NodeSelector, v1alpha1.UnselectedNodesDrain
	},
}

// recall is the return of an unused block that pods elsewhere wait for.
const recall expand.Reason = "Recall"

// begin starts the reasons to take the block that its objects do not tell.
var begin = map[expand.Reason]func(b *bed){
	recall: func(b *bed) {
		u := scheduling.NewUnscheduled()
		u.SetNeeds(map[scheduling.NodeCiliumPool]scheduling.NodeNeeds{{Node: "n"}: {Recall: fixtures.Prefixes(idleCIDR)}})
		b.r.Cluster.Unscheduled = u
	},
	expand.NodeGone: func(b *bed) { b.must(b.API.Delete(b.T.Context(), b.node())) },
}

// keeps are the reasons to keep a block. pools are p, unless it comes later, and q.
var keeps = map[string]func(b *bed, pools ...*v1alpha1.PodIPPool){
	"none": func(*bed, ...*v1alpha1.PodIPPool) {},
	"pinned": func(b *bed, _ ...*v1alpha1.PodIPPool) {
		b.Ledger.Pins.Set(crd.Pin{CIDR: fixtures.Prefix(idleCIDR), Node: "n"})
	},
	"frozen": func(b *bed, pools ...*v1alpha1.PodIPPool) {
		b.r.Cluster.Pools.Set(fixtures.Invalidated(pools[len(pools)-1]))
	},
	"window": func(b *bed, pools ...*v1alpha1.PodIPPool) {
		for _, pool := range pools {
			b.r.Cluster.Pools.Set(fixtures.Edited(pool, func(s *v1alpha1.PodIPPoolSpec) { s.Maintenance = fixtures.Nightly() }))
		}
	},
	"paused": func(b *bed, _ ...*v1alpha1.PodIPPool) {
		b.changeNode(func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"} })
	},
	"owner": func(b *bed, _ ...*v1alpha1.PodIPPool) {
		b.agentWrites(`{"spec":{"ipam":{"pool":{"10.0.0.9":{"owner":"default/kept"}}}}}`)
	},
	"agent's own": func(b *bed, _ ...*v1alpha1.PodIPPool) {
		b.agentIs(func(cn *ciliumv2.CiliumNode) {
			cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: "10.0.0.9"}}
		})
	},
	"in use": func(b *bed, _ ...*v1alpha1.PodIPPool) {
		b.r.Cluster.Pods.Set(podOn("web", "10.0.0.9"), fixtures.Noon())
	},
	"adopting": func(b *bed, _ ...*v1alpha1.PodIPPool) {
		idle := b.object(crd.BlockName(fixtures.Prefix(idleCIDR)))
		idle.Labels = map[string]string{v1alpha1.AdoptedLabel: "cluster-pool"}
		b.must(b.API.Update(b.T.Context(), idle))
		b.agentIs(func(cn *ciliumv2.CiliumNode) { cn.Status.IPAM.Used, cn.Spec.IPAM.Pools.Requested = nil, nil })
	},
	"closed": func(b *bed, _ ...*v1alpha1.PodIPPool) {
		idle := b.object(crd.BlockName(fixtures.Prefix(idleCIDR)))
		crd.SetBlockClosed(idle, expand.Closed{Agent: "c", Since: fixtures.Noon()})
		b.must(b.API.Status().Update(b.T.Context(), idle))
	},
}

// fateBed is node n, with an agent that has run for long and the idle block, or just joined.
func fateBed(t *testing.T, reason expand.Reason, p, q *v1alpha1.PodIPPool) *bed {
	first, idle := inService("10.1.0.0/28"), inService(idleCIDR)
	idle.Spec.PoolName = "q"
	var b *bed
	switch reason {
	case expand.PoolChanged:
		b = newBed(t, fixtures.Node(), q)
		b.settle()
		return b
	case expand.Compaction:
		b = poolBed(t, fixtures.Node(), p, q, first, idle, fixtures.Pooled(4, "10.1.0.0/28", idleCIDR))
		b.r.Cluster.ParkBlocks, b.r.Cluster.CompactBlocks, b.r.Cluster.Cilium = true, true, &ciliumconfig.Latest{}
		b.r.Cluster.Cilium.Set(&ciliumconfig.Config{Known: true})
		for i, addr := range []string{"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.0.0.10"} {
			b.r.Cluster.Pods.Set(podOn(fmt.Sprint(i), addr), fixtures.Noon())
		}
	default:
		if take := takes[reason]; take != nil {
			take(q, idle)
		}
		b = newBed(t, fixtures.Node(), p, q, first, idle, using(publishing(fixtures.CiliumNode("n", "", "10.1.0.0/28", idleCIDR),
			append(hosts("10.1.0.0/28"), hosts(idleCIDR)...)...), "10.1.0.1", "10.1.0.2"))
	}
	b.settleAgent()
	return b
}

// Each reason to take a block meets each reason to keep it: a new one of either kind is a row or a column here.
func TestReasonsToTakeMeetReasonsToKeep(t *testing.T) {
	onRequest := []string{"none", "pinned", "owner", "agent's own", "in use", "closed"} // it begins, and waits
	tests := map[expand.Reason][]string{                                                // the reasons to keep that do not
		expand.Reclaim:        {"none", "in use", "closed"},
		recall:                {"none", "closed"},
		expand.Compaction:     {"none", "in use", "owner"},                        // only an agent in crd mode reads owners
		expand.Deleted:        append([]string{"frozen", "window"}, onRequest...), // a person's last word
		expand.PoolDeleted:    append([]string{"frozen"}, onRequest...),
		expand.DrainRequested: onRequest,
		expand.CIDRDraining:   onRequest,
		expand.NodeUnselected: onRequest,
		expand.PoolChanged:    {"none", "window", "closed"}, // no agent has read it
		expand.NodeGone:       slices.Collect(maps.Keys(keeps)),
	}
	for reason, begins := range tests {
		for name, keep := range keeps {
			t.Run(string(reason)+", "+name, func(t *testing.T) {
				p, q := rulingPool(), fixtures.PodIPPool("q", 2, "10.0.0.8/29")
				b := fateBed(t, reason, p, q)
				if reason == expand.PoolChanged {
					keep(b, q)
					b.r.Cluster.Pools.Set(p)
				} else {
					keep(b, p, q)
				}
				if do := begin[reason]; do != nil {
					do(b)
				}
				b.settle()
				if reason != recall { // that waits for no idle time
					b.settleAfter(time.Hour)
				}
				taken := !b.has(idleCIDR) || b.block(idleCIDR).Phase != ipalloc.InService
				if taken != slices.Contains(begins, name) {
					t.Errorf("taken: %t, of %v", taken, b.phases())
				}
			})
		}
	}
}

// A node that joins keeps the block that is pinned to it, of a pool of lower priority.
func TestPinnedBlockOfALowerPoolStays(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("q", 1, "10.0.0.8/29"), rulingPool(), fixtures.Pin(idleCIDR, "n"))
	b.settle()
	b.hasPhases("joined", "10.0.0.8/30 InService", "10.1.0.0/28 InService")
}

// A drain that a person takes back while its block cools down: the block serves again. A reclaimed one does not.
func TestDrainUndoneDuringCooldown(t *testing.T) {
	for name, test := range map[string]struct {
		generation int64 // of the spec; it was 1 when the cooldown began
		want       string
	}{
		"taken back": {2, "10.0.0.8/30 InService"},
		"reclaimed":  {1, "10.0.0.8/30 CoolingDown"},
	} {
		t.Run(name, func(t *testing.T) {
			undone := inService("10.0.0.8/30")
			undone.Generation = 1
			crd.SetBlockPhase(undone, ipalloc.CoolingDown, expand.Returned, "x", fixtures.Noon())
			undone.Generation = test.generation
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), inService("10.0.0.0/29"), undone,
				using(publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29"), hosts("10.0.0.0/29")...), "10.0.0.1", "10.0.0.2"))
			b.settleAgent()
			b.settle()
			b.hasPhases(name, "10.0.0.0/29 InService", test.want)
			if got := len(b.published()) > 6; got != (test.generation == 2) {
				t.Errorf("published %v", b.published())
			}
		})
	}
}

// A plan does not count on a step that fails each time: the node claims another block, and says why if there is none.
func TestFailingStepIsNotCounted(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "podipblocks"}, "x", nil)
	back := inService("10.0.0.8/29")
	crd.SetBlockPhase(back, ipalloc.Draining, expand.Reclaim, "x", fixtures.Noon())
	leaving := using(publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29", "10.0.0.8/29"), append(hosts("10.0.0.0/29"), hosts("10.0.0.8/29")...)...), "10.0.0.1", "10.0.0.2")
	leaving.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{}
	for _, addr := range hosts("10.0.0.8/29") { // so the agent assigns none of them
		leaving.Status.IPAM.ReleaseIPs[addr] = "ready-for-release"
	}
	unprotected := inService("10.0.0.16/28")
	unprotected.Finalizers = nil
	for name, test := range map[string]struct {
		mode   ciliumnode.Mode
		block  *v1alpha1.PodIPBlock
		node   *ciliumv2.CiliumNode
		refuse string
	}{
		"an undrain":                      {ciliumnode.CRD, back, leaving, "update PodIPBlock status"},
		"the end of a handshake":          {ciliumnode.CRD, inService("10.0.0.8/29"), leaving, "patch CiliumNode status"},
		"a finalizer":                     {ciliumnode.CRD, unprotected, bare(), ""},
		"a finalizer, in multi-pool mode": {ciliumnode.MultiPool, unprotected, fixtures.CiliumNode("n", ""), ""},
		"a finalizer, in kubernetes mode": {ciliumnode.Kubernetes, unprotected, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBedIn(t, test.mode, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/24"), test.block)
			if test.node != nil {
				b.must(b.API.Create(t.Context(), test.node.DeepCopy()))
			}
			b.settleAgent()
			b.pods(4)
			b.Refuse = map[string]error{test.refuse: refused}
			for range 10 {
				_, _ = b.reconcile()
				b.Clock.SetTime(b.Clock.Now().Add(30 * time.Second))
			}
			if len(b.Blocks()) == 1 {
				t.Errorf("no other block in five minutes; published %v", b.published())
			}
		})
	}
}
