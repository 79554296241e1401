package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// pausedBy returns Node n and pool p, one of them paused.
func pausedBy(what string) (*corev1.Node, *v1alpha1.PodIPPool) {
	node, pool := fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	if what == "the Node" {
		node.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
	}
	pool.Spec.Paused = what == "the pool"
	return node, pool
}

func TestReconcilePausedWritesNothing(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"no CiliumNode":                                    {},
		"a block published and not listed":                 {publishing(fixtures.CiliumNode("n", ""), "10.0.0.1"), inService("10.0.0.0/30")},
		"a block listed and not published":                 {publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30")), inService("10.0.0.0/30")},
		"a listed block whose object was removed by force": {publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1")},
		"a block that has cooled down":                     {bare(), coolingDown("10.0.0.0/30")},
	} {
		for _, what := range []string{"the operator", "the Node", "the pool"} {
			t.Run(what+", "+name, func(t *testing.T) {
				node, pool := pausedBy(what)
				b := newBed(t, append(slices.Clone(objects), node, pool)...)
				b.r.Paused = what == "the operator"
				b.at(time.Hour)
				b.writesNothing("paused")
			})
		}
	}
}

// A pause stops the operator's actions, not its reports.
func TestReconcilePausedReportsShortage(t *testing.T) {
	for what, why := range map[string]string{"the Node": "the Node is paused", "the pool": "pool p is paused (spec.paused)"} {
		t.Run(what, func(t *testing.T) {
			node, pool := pausedBy(what)
			b := newBed(t, node, pool, publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"),
				inService("10.0.0.0/30"), inService("10.0.0.4/30")) // which is not published
			b.r.Reporter.NodeCondition = true
			b.settle()
			if len(b.node().Status.Conditions) != 0 {
				t.Errorf("conditions %v though no pod waits", b.node().Status.Conditions)
			}
			b.startAgent()
			b.pods(5)
			b.settle()
			b.hasShortage(reasonPaused)
			b.reportsShortage("ipv4: 3 more addresses needed, and the node gets none: " + why)
			b.callsNothing("settled")
			b.publishes("10.0.0.1", "10.0.0.2")
			for i := range 5 {
				b.r.Pods.Delete(podOn(fmt.Sprint("pod", i)).PodKey, fixtures.Noon())
			}
			b.settle()
			b.hasShortage(reasonEnough)
		})
	}
}

// Pausing one family does not affect the other: a new node gets its CiliumNode and its blocks, a
// block removed by force is recreated, and the agent is asked to report. The single write for both
// families leaves the paused one unchanged.
func TestReconcilePauseOfOneFamilyStopsThatAlone(t *testing.T) {
	for _, f := range ipalloc.Families() {
		cidrs := []string{"10.0.0.0/30", "fd00::/126"}
		paused, runs := cidrs[f], cidrs[1-f]
		pools := func() []client.Object {
			v4, v6 := fixtures.PodIPPool("p", 1, "10.0.0.0/28"), sixPool("fd00::/120")
			v4.Spec.Paused, v6.Spec.Paused = f == ipalloc.IPv4, f == ipalloc.IPv6
			return []client.Object{fixtures.Node(), v4, v6}
		}
		t.Run(f.String()+", a new node", func(t *testing.T) {
			b := newBed(t, pools()...)
			b.settle()
			if v := b.CiliumNode(); v == nil || !v.Lists(fixtures.Prefix(runs)) || v.Lists(fixtures.Prefix(paused)) {
				t.Fatalf("CiliumNode is %+v, want one that lists %s and not %s", v, runs, paused)
			}
			b.Check("at the end")
			b.agentSince(0)
			b.settleAt(time.Hour)
			if asked := b.CiliumNode().Release; len(asked) != 1 {
				t.Fatalf("release entries are %v, want one that asks the agent to report", asked)
			}
			b.settleAt(2 * time.Hour)
			if left := b.CiliumNode().Release; len(left) > 0 {
				t.Errorf("release entries %v are left, which nothing clears", left)
			}
		})
		t.Run(f.String()+", blocks removed by force", func(t *testing.T) {
			b := newBed(t, append(pools(), publishing(fixtures.CiliumNode("n", "", paused, runs), "10.0.0.1", "fd00::1"))...)
			b.settle()
			if b.has(paused) || !b.has(runs) {
				t.Errorf("blocks are %+v, want that of %s alone recreated", b.Blocks(), runs)
			}
		})
		t.Run(f.String()+", a block that is not listed", func(t *testing.T) {
			more := map[ipalloc.Family]string{ipalloc.IPv4: "10.0.0.4/30", ipalloc.IPv6: "fd00::4/126"}[f]
			b := newBed(t, append(pools(), publishing(fixtures.CiliumNode("n", "", more), "10.0.0.5", "fd00::5"), inService(paused), inService(more))...)
			b.settle()
			if v := b.CiliumNode(); v.Lists(fixtures.Prefix(paused)) || !v.Lists(fixtures.Prefix(more)) || !v.Lists(fixtures.Prefix(runs)) {
				t.Errorf("podCIDRs are %v", v.PodCIDRs)
			}
		})
	}
}

// sixPool is a pool of IPv6 alone.
func sixPool(cidr string) *v1alpha1.PodIPPool {
	return fixtures.Edited(fixtures.PodIPPool("q", 1), func(s *v1alpha1.PodIPPoolSpec) {
		s.IPv4, s.IPv6 = nil, &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: cidr}}}
	})
}
