package migrate

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Pods are restored from their own Cilium pool, and from no other.
func TestAllocationsOf(t *testing.T) {
	old, claimed, resting := netip.MustParsePrefix("10.0.0.0/28"), netip.MustParsePrefix("10.0.0.16/28"), netip.MustParsePrefix("10.0.0.32/28")
	live := &ciliumnode.View{Allocated: []ciliumnode.Allocation{{CiliumPool: "blue", CIDR: old}}}
	blocks := []crd.Block{{CIDR: old}, {CIDR: claimed}, {CIDR: resting, Phase: ipalloc.CoolingDown}}
	want := []ciliumnode.Allocation{{CiliumPool: "blue", CIDR: old}, {CiliumPool: "main", CIDR: claimed}}
	same := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(want, allocationsOf(live, blocks, "main"), same); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
