package node

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

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
	b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "d", false)), b.Clock.Now())
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
	for name, test := range map[string]struct {
		requested int // of IPv4; 0: the agent has yet to request anything
		blocks    []string
		events    int
	}{
		"it requests IPv4 alone":      {1, []string{"10.0.0.0/30"}, 1},
		"it has yet to say something": {0, []string{"10.0.0.0/30", "fd00::/126"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := poolBed(t, fixtures.Node(), fixtures.DualStack(), fixtures.Pooled(test.requested))
			b.settle()
			for _, block := range test.blocks {
				if !b.has(block) {
					t.Errorf("blocks are %+v, want %s", b.Blocks(), block)
				}
			}
			if !b.has("fd00::/126") != (test.events > 0) {
				t.Errorf("blocks are %+v", b.Blocks())
			}
			got := b.EventsOf(event.ReasonFamilyNotRun)
			if len(got) != test.events || test.events > 0 && !strings.Contains(got[0], "the agent does not run ipv6, which pool p has: no ipv6 block is claimed for this node, and the agent returns one") {
				t.Errorf("events %q, want %d that names family and pool, and what becomes of a block", got, test.events)
			}
			b.Check("at the end")
		})
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
			if err := b.API.Get(t.Context(), client.ObjectKeyFromObject(answered), answered); err != nil {
				t.Fatal(err)
			}
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
	for addr := range cn.Pool {
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
