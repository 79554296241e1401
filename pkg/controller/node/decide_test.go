package node

import (
	"net/netip"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pacing"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// If both families of a node see the same budget, the second one reclaims no more than is left.
func TestDecideForFamiliesThatShareTheBudget(t *testing.T) {
	cn := publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29", "10.0.0.8/29", "fd00::/125", "fd00::8/125"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6",
		"10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14", "fd00::1", "fd00::2", "fd00::3", "fd00::4", "fd00::5", "fd00::6",
		"fd00::9", "fd00::a", "fd00::b", "fd00::c", "fd00::d", "fd00::e")
	cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1", "fd00::1")
	pool := fixtures.DualStack()
	pool.Spec.IPv6.BlockSize = 125
	objects := []client.Object{fixtures.Node(), pool, cn}
	for _, cidr := range cn.Spec.IPAM.PodCIDRs {
		objects = append(objects, fixtures.BlockObject(cidr.String(), ipalloc.InService))
	}
	b := newBed(t, objects...)
	b.agentSince(0)
	b.r.Pacing = pacing.New(10, 0) // one at once
	b.at(time.Hour)
	o, err := b.r.observe(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ipalloc.Families() {
		b.memoryOf(o.uid(), f).IdleSince = []time.Time{fixtures.Noon()}
	}
	var got []netip.Prefix
	for _, p := range b.r.decide(t.Context(), o) {
		got = append(got, reclaims(p.plan)...)
	}
	if len(got) != 1 || got[0] != fixtures.Prefix("10.0.0.8/29") {
		t.Errorf("reclaimed are %v, want one block", got)
	}
}
