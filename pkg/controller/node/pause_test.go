package node

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestReconcilePausedWritesNothing(t *testing.T) {
	paused := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	paused.Spec.Paused = true
	pausedNode := fixtures.Node()
	pausedNode.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
	tests := map[string]struct {
		node   *corev1.Node
		pool   *v1alpha1.PodIPPool
		paused bool
	}{
		"the operator": {fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), true},
		"the Node":     {pausedNode, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), false},
		"the pool":     {fixtures.Node(), paused, false},
	}
	states := map[string][]client.Object{
		"no CiliumNode": {},
		"a block published and not listed": {
			publishing(fixtures.CiliumNode("n", ""), "10.0.0.1"), inService("10.0.0.0/30"),
		},
		"a block listed and not published": {
			publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30")), inService("10.0.0.0/30"),
		},
		"a listed block whose object was removed by force": {publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1")},
		"a block that has cooled down":                     {bare(), coolingDown("10.0.0.0/30")},
	}
	for name, test := range tests {
		for state, objects := range states {
			t.Run(name+", "+state, func(t *testing.T) {
				var all []client.Object
				for _, o := range append([]client.Object{test.node, test.pool}, objects...) {
					all = append(all, o.DeepCopyObject().(client.Object))
				}
				b := newBed(t, all...)
				b.r.Paused = test.paused
				b.at(time.Hour)
				calls, err := b.reconcile()
				if writes := fakeapi.WritesOf(calls); err != nil || len(writes) > 0 {
					t.Errorf("writes %v, %v; want none", writes, err)
				}
			})
		}
	}
}

// A pause stops the operator's actions, not its reports.
func TestReconcilePausedReportsShortage(t *testing.T) {
	paused := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	paused.Spec.Paused = true
	pausedNode := fixtures.Node()
	pausedNode.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
	tests := map[string]struct {
		node *corev1.Node
		pool *v1alpha1.PodIPPool
		says string
	}{
		"the Node": {pausedNode, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), "ipv4: 3 more addresses needed, and the node gets none: the Node is paused"},
		"the pool": {fixtures.Node(), paused, "ipv4: 3 more addresses needed, and the node gets none: pool p is paused (spec.paused)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, test.node, test.pool, publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"),
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
			b.reportsShortage(test.says)
			b.callsNothing("settled: calls %v, %v")
			if len(b.CiliumNode().Pool) != 2 {
				t.Errorf("the pool is %v", b.CiliumNode().Pool)
			}

			for i := range 5 {
				b.r.Pods.Delete(podOn(fmt.Sprint("pod", i)).PodKey, fixtures.Noon())
			}
			b.settle()
			b.hasShortage(reasonEnough)
		})
	}
}

// If one family is paused, the single write for both families leaves that one unchanged.
func TestReconcilePausedFamilyStaysAsItIs(t *testing.T) {
	v4, v6 := fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.PodIPPool("q", 1)
	v4.Spec.Paused = true
	v6.Spec.IPv4, v6.Spec.IPv6 = nil, &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/120"}}}
	b := newBed(t, fixtures.Node(), v4, v6, publishing(fixtures.CiliumNode("n", "", "10.0.0.4/30"), "10.0.0.1"),
		inService("10.0.0.0/30"), inService("10.0.0.4/30"))
	b.settle()
	v := b.CiliumNode()
	if v.Lists(fixtures.Prefix("10.0.0.0/30")) || !v.Lists(fixtures.Prefix("10.0.0.4/30")) || !v.Lists(fixtures.Prefix("fd00::/126")) {
		t.Errorf("podCIDRs are %v", v.PodCIDRs)
	}
}

// Pausing one family does not affect the other: a new node gets its CiliumNode and its blocks,
// a block removed by force is recreated, and the agent is asked to report.
func TestReconcilePauseOfOneFamilyStopsThatAlone(t *testing.T) {
	pools := func() (v4, v6 *v1alpha1.PodIPPool) {
		v4, v6 = fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.PodIPPool("q", 1)
		v6.Spec.IPv4, v6.Spec.IPv6 = nil, &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/120"}}}
		return v4, v6
	}
	for name, pause := range map[string]func(v4, v6 *v1alpha1.PodIPPool) (paused, runs string){
		"IPv6": func(_, v6 *v1alpha1.PodIPPool) (string, string) {
			v6.Spec.Paused = true
			return "fd00::/126", "10.0.0.0/30"
		},
		"IPv4": func(v4, _ *v1alpha1.PodIPPool) (string, string) {
			v4.Spec.Paused = true
			return "10.0.0.0/30", "fd00::/126"
		},
	} {
		t.Run(name+", a new node", func(t *testing.T) {
			v4, v6 := pools()
			paused, runs := pause(v4, v6)
			b := newBed(t, fixtures.Node(), v4, v6)
			b.settle()
			v := b.CiliumNode()
			if v == nil || !v.Lists(fixtures.Prefix(runs)) || v.Lists(fixtures.Prefix(paused)) {
				t.Fatalf("CiliumNode is %+v, want one that lists %s and not %s", v, runs, paused)
			}
			b.Check("at the end")
		})
		t.Run(name+", blocks removed by force", func(t *testing.T) {
			v4, v6 := pools()
			paused, runs := pause(v4, v6)
			b := newBed(t, fixtures.Node(), v4, v6, publishing(fixtures.CiliumNode("n", "", paused, runs), "10.0.0.1", "fd00::1"))
			b.settle()
			if b.has(paused) || !b.has(runs) {
				t.Errorf("blocks are %+v, want that of %s alone recreated", b.Blocks(), runs)
			}
		})
		t.Run(name+", an agent that has to be asked", func(t *testing.T) {
			v4, v6 := pools()
			pause(v4, v6)
			b := newBed(t, fixtures.Node(), v4, v6)
			b.settle()
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
	}
}
