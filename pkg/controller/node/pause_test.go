package node

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// pausedBy returns Node n and pool p, one of them paused.
func pausedBy(what string) (*corev1.Node, *v1alpha1.PodIPPool) {
	node, pool := fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	if what == "the Node" {
		node.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
	}
	pool.Spec.Paused = new(what == "the pool")
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
				b.r.Cluster.Paused = what == "the operator"
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
			b.reportsShortage("ipv4: the node needs more addresses and gets none: " + why)
			b.callsNothing("settled")
			b.publishes("10.0.0.1", "10.0.0.2")
			for i := range 5 {
				b.r.Cluster.Pods.Delete(podOn(fmt.Sprint("pod", i)).PodKey, fixtures.Noon())
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
			v4.Spec.Paused, v6.Spec.Paused = new(f == ipalloc.IPv4), new(f == ipalloc.IPv6)
			return []client.Object{fixtures.Node(), v4, v6}
		}
		t.Run(f.String()+", a new node", func(t *testing.T) {
			b := newBed(t, pools()...)
			b.settle()
			if v := b.CiliumNode(); v == nil || !v.ListsForDefaultPool(fixtures.Prefix(runs)) || v.ListsForDefaultPool(fixtures.Prefix(paused)) {
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
			if v := b.CiliumNode(); v.ListsForDefaultPool(fixtures.Prefix(paused)) || !v.ListsForDefaultPool(fixtures.Prefix(more)) || !v.ListsForDefaultPool(fixtures.Prefix(runs)) {
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

func TestFamilyNotRunIsNotClaimed(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.DualStack(), fixtures.IPv4Agent(), inService("10.0.0.0/29"))
	b.agentSince(0)
	b.settleAt(time.Hour)
	if len(b.Blocks()) != 1 {
		t.Errorf("blocks are %+v, want the IPv4 one alone", b.Blocks())
	}
	if got := b.EventsOf(event.ReasonFamilyNotRun); len(got) != 1 || !strings.Contains(got[0], "the agent does not run ipv6, which pool p has") {
		t.Errorf("events %q, want one that names family and pool", got)
	}

	// The agent restarts. It may run IPv6 now and wait for addresses, or may just be slow. It
	// counts as waiting only after it has not come up for long.
	b.r.Cluster.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "d", false)), b.Clock.Now())
	b.settle()
	if len(b.Blocks()) != 1 {
		t.Errorf("blocks are %+v a moment after the agent started, want the IPv4 one alone", b.Blocks())
	}
	result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("n"))
	if err != nil || result.RequeueAfter != time.Minute {
		t.Errorf("the node is reconciled again after %s, %v; want when the agent has been down for a minute", result.RequeueAfter, err)
	}
	b.settleAfter(time.Minute)
	if !b.has("fd00::/126") {
		t.Errorf("blocks are %+v, want an IPv6 one, for which the agent waits", b.Blocks())
	}
	b.Check("at the end")
}

// In multi-pool mode an agent's requests show which families it runs.
func TestFamilyNotRequestedIsNotClaimed(t *testing.T) {
	for requested, want := range []string{ // of IPv4; 0: the agent has yet to request anything
		"blocks 10.0.0.0/30 10.0.0.4/30 fd00::/126 fd00::4/126; lists 10.0.0.0/30 10.0.0.4/30 fd00::/126 fd00::4/126",
		"blocks 10.0.0.0/30; lists 10.0.0.0/30",
	} {
		b := poolBed(t, fixtures.Node(), fixtures.DualStack(), fixtures.Pooled(requested))
		b.settle()
		b.is(want)
		got := b.EventsOf(event.ReasonFamilyNotRun)
		if len(got) != requested || requested > 0 && !strings.Contains(got[0], "the agent does not run ipv6, which pool p has: no ipv6 block is claimed for this node, and the agent returns one") {
			t.Errorf("events %q, want %d that names family and pool, and what becomes of a block", got, requested)
		}
	}
}

// An address of a family that the agent does not run is removed once it has been marked for some
// time and the agent has reported since. The pods are read live, because the watch of pods may lag;
// here it delivers no event.
func TestFamilyNotRunIsRemoved(t *testing.T) {
	const pod, free, report = "fd00::1", "fd00::2", "ff0e::db8:0:1"
	finished := fixtures.Pod("c", "4", "n", "10.0.0.3", free)
	finished.Status.Phase = corev1.PodSucceeded
	tests := map[string]struct {
		pods         []client.Object
		late         *corev1.Pod // written once addresses are marked
		marked, left []string
	}{
		"a pod has an address":             {pods: []client.Object{fixtures.Pod("a", "2", "n", "10.0.0.2", pod)}, marked: []string{free}, left: []string{pod}},
		"a pod's status comes late":        {late: fixtures.Pod("a", "2", "n", "10.0.0.2", pod), marked: []string{pod, free}, left: []string{pod}},
		"a pod has come, without a status": {pods: []client.Object{fixtures.Pod("a", "2", "n")}, left: []string{pod, free}},
		"pods elsewhere, or that finished": {pods: []client.Object{fixtures.Pod("b", "3", "m", "10.0.0.9", free), finished}, marked: []string{pod, free}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pool, cn := fixtures.DualStack(), fixtures.IPv4Agent()
			maps.Copy(cn.Spec.IPAM.Pool, fixtures.AllocationMap(pod, free))
			pool.Spec.IPv6.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
			cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, fixtures.PodCIDR("fd00::/126"))
			b := newBed(t, append(test.pods, fixtures.Node(), pool, cn,
				inService("10.0.0.0/29"), inService("fd00::/126"))...)
			b.agentSince(0)
			b.settleAt(time.Hour)
			b.compareIPv6("at first", []string{pod, free}, test.marked)
			b.settleAfter(b.Defaults().Policy.AckTimeout)
			if test.marked == nil {
				b.compareIPv6("later", test.left, nil)
				return
			}
			b.compareIPv6("once marks have stood", []string{pod, free}, append(slices.Clone(test.marked), report))
			if test.late != nil {
				b.must(b.API.Create(t.Context(), test.late))
			}
			answered := fixtures.CiliumNode("n", "")
			b.must(b.API.Get(t.Context(), client.ObjectKeyFromObject(answered), answered))
			answered.Status.IPAM.ReleaseIPs[report] = "do-not-release"
			b.must(b.API.Status().Update(t.Context(), answered))
			b.settle()
			b.settleAfter(b.Defaults().Policy.AckTimeout) // entries of former users go
			b.compareIPv6("once the agent has answered", test.left, nil)
		})
	}
}

// compareIPv6 compares the IPv6 addresses in the pool of node n and those marked.
func (b *bed) compareIPv6(when string, pool, marked []string) {
	b.T.Helper()
	type addresses struct{ Pool, Marked []netip.Addr }
	got, cn := addresses{}, b.CiliumNode()
	for addr := range cn.Published() {
		if addr.Is6() {
			got.Pool = append(got.Pool, addr)
		}
	}
	for addr, state := range cn.Release {
		if addr.Is6() && state == expand.Marked {
			got.Marked = append(got.Marked, addr)
		}
	}
	slices.SortFunc(got.Pool, netip.Addr.Compare)
	slices.SortFunc(got.Marked, netip.Addr.Compare)
	want := addresses{fixtures.Addrs(pool...), fixtures.Addrs(marked...)}
	if diff := cmp.Diff(want, got, fixtures.CompareNetip()); diff != "" {
		b.T.Errorf("%s (-want +got):\n%s", when, diff)
	}
}
