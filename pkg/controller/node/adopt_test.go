package node

import (
	"maps"
	"slices"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// byMultiPool is node n as served in multi-pool mode.
func byMultiPool(cidrs ...string) *ciliumv2.CiliumNode {
	cn := bare()
	var list []iputil.Prefix
	for _, c := range cidrs {
		list = append(list, fixtures.PodCIDR(c))
	}
	cn.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: "default", CIDRs: list}}
	return cn
}

// byClusterPool is node n as served in cluster-pool mode.
func byClusterPool(cidrs ...string) *ciliumv2.CiliumNode {
	return publishing(fixtures.CiliumNode("n", "", cidrs...))
}

// adoptedBlock is a block of pool p with a CIDR that another IPAM assigned to n.
func adoptedBlock(cidr string) *v1alpha1.PodIPBlock {
	obj := crd.AdoptedBlock(fixtures.Prefix(cidr), "p", "n", "node-uid", "cluster-pool")
	obj.UID = types.UID("uid-" + cidr)
	return obj
}

// A node that another IPAM serves is left alone, with or without pods, even if its CIDRs fit the
// grid of its pool. The operator does not write until blocks cover all of its CIDRs.
func TestNodeOfAnotherIPAMIsLeftAlone(t *testing.T) {
	tests := map[string][]client.Object{
		"cluster-pool or kubernetes":        {byClusterPool("10.0.0.0/30")},
		"multi-pool":                        {byMultiPool("10.0.0.0/30")},
		"off the grid":                      {byClusterPool("10.0.0.0/29")},
		"half adopted":                      {byMultiPool("10.0.0.0/30", "10.0.0.8/30"), adoptedBlock("10.0.0.0/30")},
		"one family of two":                 {byClusterPool("10.0.0.0/30", "fd00::/122"), adoptedBlock("10.0.0.0/30")},
		"adopted in part by smaller ones":   {byClusterPool("10.0.0.0/29"), adoptedBlock("10.0.0.0/30")},
		"its pool of crd mode is elsewhere": {publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "172.16.0.1")},
	}
	for name, objects := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, append(objects, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/24"))...)
			b.settleAgent()
			b.pods(5)
			b.callsNothing("at rest")
			b.restart()
			if len(b.r.Cluster.Ledger.NamedElsewhere("m", fixtures.Prefix("10.0.0.0/30"))) == 0 {
				t.Error("another node may be given what this one has")
			}
		})
	}
}

// The shortage of a node ends when another IPAM serves it again, as at the end of a move back: no
// pod could start there while the taint stands.
func TestShortageEndsWithAnotherIPAM(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), foreignBlock("10.0.0.0/30"), bare())
	b.r.Cluster.ShortageTaint, b.r.Reporter.NodeCondition = "short", true
	b.settleAgent()
	b.pods(1)
	b.settle()
	short := func() (taint, condition bool) {
		n := b.node()
		return len(n.Spec.Taints) == 1, slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.NodeAddressShortage && c.Status == corev1.ConditionTrue
		})
	}
	if taint, condition := short(); !taint || !condition {
		t.Fatalf("without an address the Node has taint %t and condition %t", taint, condition)
	}
	b.agentIs(func(cn *ciliumv2.CiliumNode) { cn.Spec.IPAM.PodCIDRs = byClusterPool("10.9.0.0/24").Spec.IPAM.PodCIDRs })
	b.settle()
	if taint, condition := short(); taint || condition {
		t.Errorf("under another IPAM the Node has taint %t and condition %t", taint, condition)
	}
	if left := fakeapi.Series(t, b.r.Metrics.shortages); len(left) > 0 {
		t.Errorf("under another IPAM the metrics say %v", left)
	}
}

// Blocks of any size and position behave like any other: they are published in one patch, including
// addresses in use that no pool would publish, without which the agent could not restore the pods.
// There is no other write until the agent reports. Then the node grows in blocks of the pool's size.
func TestAdoptedBlocks(t *testing.T) {
	for name, test := range map[string]struct {
		cn     *ciliumv2.CiliumNode
		blocks []string // in the order of podCIDRs
		more   string   // an address in use that the pool would not publish; "": none
	}{
		"cluster-pool":            {byClusterPool("10.0.0.16/28"), []string{"10.0.0.16/28"}, "10.0.0.16"},
		"multi-pool, several":     {byMultiPool("10.0.0.64/29", "10.0.0.32/30"), []string{"10.0.0.32/30", "10.0.0.64/29"}, ""},
		"smaller than the pool's": {byClusterPool("10.0.0.16/31"), []string{"10.0.0.16/31"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{test.cn, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/24")}
			var want []string
			for _, cidr := range test.blocks {
				objects = append(objects, adoptedBlock(cidr))
				want = append(want, hosts(cidr)...)
			}
			b := newBed(t, objects...)
			b.settleAgent()
			b.pods(30)
			if test.more != "" {
				want = slices.Insert(want, 0, test.more)
				b.r.Cluster.Pods.Set(podOn("uses", test.more), fixtures.Noon())
			}
			if diff := cmp.Diff([]string{"patch CiliumNode"}, fakeapi.WritesOf(b.step())); diff != "" {
				t.Fatalf("writes (-want +got):\n%s", diff)
			}
			b.Check("published")
			slices.Sort(want)
			b.publishes(want...)
			b.listsOnly(test.blocks...)
			b.at(time.Hour)
			b.writesNothing("its agent has not reported")

			b.reports(want[0])
			b.settle()
			b.Check("moved")
			if n := len(b.Blocks()); n <= len(test.blocks) {
				t.Errorf("%d blocks; 30 pods need more than it came with", n)
			}
		})
	}
}

// hosts returns the addresses of a block except the first and the last, but both of two.
func hosts(cidr string) []string {
	p := fixtures.Prefix(cidr)
	if p.Bits() == 31 {
		return []string{p.Addr().String(), p.Addr().Next().String()}
	}
	var out []string
	for a := p.Addr().Next(); p.Contains(a.Next()); a = a.Next() {
		out = append(out, a.String())
	}
	return out
}

// The only block of a node is not reclaimed automatically if it was adopted. If its drain is
// requested, a block of the pool's own size replaces it.
func TestAdoptedBlockDrainsWhenAsked(t *testing.T) {
	b := newBed(t, byClusterPool("10.0.0.16/28"), fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/24"), adoptedBlock("10.0.0.16/28"))
	b.settleAgent()
	b.settle()
	b.reports("10.0.0.17")
	b.settle()
	b.hasPhases("at first", "10.0.0.16/28 InService")
	b.must(b.API.Delete(t.Context(), adoptedBlock("10.0.0.16/28")))
	b.Show(b.object("10.0.0.16-28"), nil)
	b.settle()
	b.hasPhases("once deleted", "10.0.0.0/30 InService", "10.0.0.16/28 Draining", "10.0.0.4/30 InService", "10.0.0.8/30 InService")
}

// In shadow mode the operator does not write, and reports the changes it would make.
func TestShadowWritesNothing(t *testing.T) {
	two, one := byMultiPool("10.0.0.16/28", "10.0.0.32/28"), byClusterPool("10.0.0.16/28")
	adopted, leaving := adoptedBlock("10.0.0.16/28"), publishing(fixtures.CiliumNode("n", "", "10.9.0.0/30", "10.0.0.0/28"), append(hosts("10.9.0.0/30"), hosts("10.0.0.0/28")...)...)
	for name, test := range map[string]struct {
		objects []client.Object
		pods    int
		want    difference
	}{
		"another IPAM's":          {objects: []client.Object{two, fixtures.Node()}, want: difference{adopt: 2}},
		"half adopted":            {objects: []client.Object{two, fixtures.Node(), adopted}, want: difference{adopt: 1}},
		"adopted":                 {objects: []client.Object{one, fixtures.Node(), adopted}},
		"adopted, and too small":  {objects: []client.Object{one, fixtures.Node(), adopted}, pods: 20, want: difference{claim: 1}},
		"a new node":              {objects: []client.Object{bare(), fixtures.Node()}, want: difference{claim: 1}},
		"no CiliumNode yet":       {objects: []client.Object{fixtures.Node()}, want: difference{claim: 1}},
		"a Node that is gone":     {objects: []client.Object{inService("10.0.0.0/30")}, want: difference{free: 1}},
		"a block that must leave": {objects: []client.Object{leaving, fixtures.Node(), inService("10.9.0.0/30"), inService("10.0.0.0/28")}, want: difference{drain: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, append(test.objects, fixtures.PodIPPool("p", 1, "10.0.0.0/24"))...)
			b.r.Shadow = true
			b.settleAgent()
			b.pods(test.pods)
			for range 3 {
				b.writesNothing("in shadow")
			}
			if b.Events.Last.Changed("n", topicShadow, test.want.String()) {
				t.Errorf("what differs is not %+v", test.want)
			}
		})
	}
}

// In shadow mode the operator counts idle time, and reports the drain once it would begin.
func TestShadowFollowsANode(t *testing.T) {
	b := reclaimable(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b.r.Shadow = true
	look := func(when string, again time.Duration, want map[string]float64) {
		t.Helper()
		b.Watch()
		result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("n"))
		got := fakeapi.Series(t, b.r.Metrics.shadow)
		maps.DeleteFunc(got, func(_ string, n float64) bool { return n == 0 })
		if diff := cmp.Diff(want, got); err != nil || result.RequeueAfter != again || diff != "" {
			t.Errorf("%s: again after %s, %v, differs by:\n%s", when, result.RequeueAfter, err, diff)
		}
	}
	look("at noon", 10*time.Minute, map[string]float64{})
	b.at(10 * time.Minute)
	look("once a block has been idle", 0, map[string]float64{"cilium_pool_shadow_difference n drain": 1})
}

// If the watch has not delivered an adopted block yet, and another process has published it, the
// operator must not take the node's pool for one that people filled: the agent would answer no
// mark.
func TestNodeWhoseBlocksAreYetToBeShown(t *testing.T) {
	cn := publishing(byClusterPool("10.0.0.0/29"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6")
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/24"), cn)
	b.settleAgent()
	b.pods(6)
	b.Blind = true
	b.must(b.API.Create(t.Context(), adoptedBlock("10.0.0.0/29")))
	b.writesNothing("at rest")
	b.restart()
	b.settleAgent()
	b.writesNothing("once it is shown")
}
