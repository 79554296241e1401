package node

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
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
			b.callsNothing("calls %v, error %v; want none")
			b.restart()
			if _, err := claimFor(b.r.Ledger, "m", b.r.Pools.Get("p"), "10.0.0.0/30"); err == nil {
				t.Error("another node was given what this one has")
			}
		})
	}
}

// claimFor returns the ledger's claim for another node where cidr is a candidate.
func claimFor(l *state.Ledger, node string, pool *crd.Pool, cidr string) (netip.Prefix, error) {
	for {
		got, _, err := l.Claim(ipalloc.IPv4, node, "", []*crd.Pool{pool})
		if err != nil || got == fixtures.Prefix(cidr) {
			return got, err
		}
	}
}

// Blocks of any size and position behave like any other: they are published in one patch, including
// addresses in use that no pool would publish, and there is no other write until the agent reports.
// Then the node grows in blocks of the pool's size.
func TestAdoptedBlocks(t *testing.T) {
	tests := map[string]struct {
		cn     *ciliumv2.CiliumNode
		blocks []string
		// first are the addresses of the first patch, and listed the podCIDRs after it.
		first, listed []string
	}{
		"cluster-pool": {
			cn: byClusterPool("10.0.0.16/28"), blocks: []string{"10.0.0.16/28"},
			first: hosts("10.0.0.16/28"), listed: []string{"10.0.0.16/28"},
		},
		"multi-pool, several": {
			cn: byMultiPool("10.0.0.64/29", "10.0.0.32/30"), blocks: []string{"10.0.0.64/29", "10.0.0.32/30"},
			first: append(hosts("10.0.0.32/30"), hosts("10.0.0.64/29")...), listed: []string{"10.0.0.32/30", "10.0.0.64/29"},
		},
		"smaller than the pool's": {
			cn: byClusterPool("10.0.0.16/31"), blocks: []string{"10.0.0.16/31"},
			first: []string{"10.0.0.16", "10.0.0.17"}, listed: []string{"10.0.0.16/31"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{tt.cn, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/24")}
			for _, cidr := range tt.blocks {
				objects = append(objects, adoptedBlock(cidr))
			}
			b := newBed(t, objects...)
			b.settleAgent()
			b.pods(30)
			calls, err := b.reconcile()
			if diff := cmp.Diff([]string{"patch CiliumNode"}, fakeapi.WritesOf(calls)); err != nil || diff != "" {
				t.Fatalf("error %v, writes (-want +got):\n%s", err, diff)
			}
			b.Check("published")
			if diff := cmp.Diff(fixtures.Addrs(tt.first...), sortedPool(b.CiliumNode()), fixtures.CompareNetip()); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(fixtures.Prefixes(tt.listed...), b.CiliumNode().PodCIDRs, fixtures.CompareNetip()); diff != "" {
				t.Errorf("podCIDRs (-want +got):\n%s", diff)
			}
			b.at(time.Hour)
			b.writesNothing("its agent has not reported: writes %v, error %v; want none")

			b.reports(tt.first[0])
			b.settle()
			b.Check("moved")
			if n := len(b.Blocks()); n <= len(tt.blocks) {
				t.Errorf("%d blocks; 30 pods need more than it came with", n)
			}
		})
	}
}

// hosts returns the addresses of a block except the first and the last.
func hosts(cidr string) []string {
	p := fixtures.Prefix(cidr)
	var out []string
	for a := p.Addr().Next(); p.Contains(a.Next()); a = a.Next() {
		out = append(out, a.String())
	}
	return out
}

func sortedPool(v *ciliumnode.View) []netip.Addr {
	var out []netip.Addr
	for a := range v.Pool {
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// A pod's address is published with the first patch even if its pool would not publish it;
// otherwise the agent could not restore the pod.
func TestAddressesInUseComeWithTheFirstPatch(t *testing.T) {
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/24")
	pool.Spec.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.20/32"}}
	b := newBed(t, byClusterPool("10.0.0.16/28"), fixtures.Node(), pool, adoptedBlock("10.0.0.16/28"))
	b.r.Pods.Set(podOn("first", "10.0.0.16"), fixtures.Noon())
	b.r.Pods.Set(podOn("reserved", "10.0.0.20"), fixtures.Noon())
	calls, err := b.reconcile()
	if err != nil || len(fakeapi.WritesOf(calls)) != 1 {
		t.Fatalf("calls %v, error %v", calls, err)
	}
	for _, a := range fixtures.Addrs("10.0.0.16", "10.0.0.20") {
		if _, there := b.CiliumNode().Pool[a]; !there {
			t.Errorf("%s is in use and not published", a)
		}
	}
}

// The only block of a node is not reclaimed automatically if it was adopted. If its drain is
// requested, a block of the pool's own size replaces it.
func TestAdoptedBlockDrainsWhenAsked(t *testing.T) {
	b := newBed(t, byClusterPool("10.0.0.16/28"), fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/24"), adoptedBlock("10.0.0.16/28"))
	b.settleAgent()
	b.settle()
	b.reports("10.0.0.17")
	b.settle()
	if n := len(b.Blocks()); n != 1 {
		t.Fatalf("%d blocks, want the adopted one alone", n)
	}
	b.must(b.API.Delete(t.Context(), adoptedBlock("10.0.0.16/28")))
	obj := b.object("10.0.0.16-28")
	b.Show(obj, nil)
	b.settle()
	var old, own int
	for _, k := range b.Blocks() {
		switch {
		case k.AdoptedFrom == "" && k.CIDR.Bits() == 30:
			own++
		case k.Phase == ipalloc.Draining:
			old++
		}
	}
	if old != 1 || own == 0 {
		t.Errorf("%d blocks drain and %d of the pool's size have come: %v", old, own, b.Blocks())
	}
}

// A Node recreated under the same name gets its adopted blocks back, in any state of its migration.
func TestAdoptedBlocksOfARecreatedNode(t *testing.T) {
	resting := adoptedBlock("10.0.0.16/28")
	crd.SetBlockPhase(resting, ipalloc.CoolingDown, expand.NodeGone, "x", fixtures.Noon())
	b := newBed(t, bare(), fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/24"), resting)
	b.settle()
	b.Check("at the end")
	if n := len(b.CiliumNode().Pool); n != 14 {
		t.Errorf("%d addresses are published, want 14", n)
	}
}

// If publishing fails or its response is lost, it is repeated; it always covers the whole node.
func TestAdoptionInterrupted(t *testing.T) {
	for name, f := range map[string]fakeapi.Fate{"refused": fakeapi.Refused, "unheard": fakeapi.Unheard} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, byMultiPool("10.0.0.16/28", "10.0.0.32/28"), fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/24"),
				adoptedBlock("10.0.0.16/28"), adoptedBlock("10.0.0.32/28"))
			b.Fate = func(string) fakeapi.Fate { return f }
			if _, err := b.reconcile(); !errors.Is(err, fakeapi.ErrLine) {
				t.Fatalf("got %v", err)
			}
			if n := len(b.CiliumNode().Pool); n != 0 && n != 28 {
				t.Errorf("%d addresses are published, want none or all", n)
			}
			b.Fate = func(string) fakeapi.Fate { return fakeapi.Done }
			b.restart()
			b.settle()
			b.Check("at the end")
			if n := len(b.CiliumNode().Pool); n != 28 {
				t.Errorf("%d addresses are published at the end, want 28", n)
			}
		})
	}
}

// In shadow mode the operator does not write, and reports the changes it would make.
func TestShadowWritesNothing(t *testing.T) {
	gone := lastSeen("node-uid")
	gone.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: "default/web"}}
	tests := map[string]struct {
		objects []client.Object
		pods    int
		want    difference
	}{
		"another IPAM's": {
			objects: []client.Object{byMultiPool("10.0.0.16/28", "10.0.0.32/28"), fixtures.Node()}, want: difference{adopt: 2},
		},
		"half adopted": {
			objects: []client.Object{byMultiPool("10.0.0.16/28", "10.0.0.32/28"), fixtures.Node(), adoptedBlock("10.0.0.16/28")},
			want:    difference{adopt: 1},
		},
		"adopted": {
			objects: []client.Object{byClusterPool("10.0.0.16/28"), fixtures.Node(), adoptedBlock("10.0.0.16/28")},
		},
		"adopted, and too small": {
			objects: []client.Object{byClusterPool("10.0.0.16/28"), fixtures.Node(), adoptedBlock("10.0.0.16/28")},
			pods:    20, want: difference{claim: 1},
		},
		"a new node":        {objects: []client.Object{bare(), fixtures.Node()}, want: difference{claim: 1}},
		"no CiliumNode yet": {objects: []client.Object{fixtures.Node()}, want: difference{claim: 1}},
		"a Node that is gone": {
			objects: []client.Object{inService("10.0.0.0/30")},
			want:    difference{free: 1},
		},
		"a block that is to go": {
			objects: []client.Object{
				publishing(fixtures.CiliumNode("n", "", "10.9.0.0/30", "10.0.0.0/28"), append(hosts("10.9.0.0/30"), hosts("10.0.0.0/28")...)...),
				fixtures.Node(), inService("10.9.0.0/30"), inService("10.0.0.0/28"),
			},
			want: difference{drain: 1},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, append(tt.objects, fixtures.PodIPPool("p", 1, "10.0.0.0/24"))...)
			b.r.Shadow = true
			b.settleAgent()
			b.pods(tt.pods)
			for range 3 {
				calls, err := b.reconcile()
				if err != nil || len(fakeapi.WritesOf(calls)) > 0 {
					t.Errorf("writes %v, error %v; want none", fakeapi.WritesOf(calls), err)
				}
			}
			if news := b.Events.Last.Changed("n", topicShadow, tt.want.String()); news {
				t.Errorf("what differs is not %+v", tt.want)
			}
		})
	}
}

// A CIDR assigned to an agent in another mode stays taken while the CiliumNode names it, even
// after its block is gone.
func TestAllocatedStaysTaken(t *testing.T) {
	l := state.ReadyLedger()
	l.UpsertCiliumNode(ciliumnode.NewView(byMultiPool("10.0.0.0/30")))
	pools := []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/30"))}
	if cidr, _, err := l.Claim(ipalloc.IPv4, "m", "", pools); !errors.Is(err, ipalloc.ErrExhausted) {
		t.Errorf("claimed %s, %v; want that nothing is left", cidr, err)
	}
	l.UpsertCiliumNode(ciliumnode.NewView(byMultiPool()))
	if _, _, err := l.Claim(ipalloc.IPv4, "m", "", pools); err != nil {
		t.Errorf("once nothing is named: %v", err)
	}
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
	b.writesNothing("calls %v, error %v; want no write")
	b.restart()
	b.settleAgent()
	b.writesNothing("once it is shown: calls %v, error %v; want no write")
}
