package list

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A pool's addresses are in the blocks that nodes hold.
func TestPoolCountsItsBlocks(t *testing.T) {
	pool := v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Generation: 1}}
	pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 29, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/25"}}}
	block := crd.NewBlock(netip.MustParsePrefix("10.0.0.0/29"), "p", "a", "")
	s := &clusterread.Objects{Pools: []v1alpha1.PodIPPool{pool}, Blocks: []v1alpha1.PodIPBlock{*block}}
	r := PoolRows(clusterview.New(s, clusterread.Operator{Settings: config.DefaultSettings()}))[0]
	if r.Nodes != 1 || r.Blocks.Held() != 1 || r.Addresses != 6 || r.Room != 15 {
		t.Errorf("%d nodes, %d blocks, %d addresses, room for %d; want 1, 1, 6, 15", r.Nodes, r.Blocks.Held(), r.Addresses, r.Room)
	}
}

// A pool that an older one overlaps in full has no free block, for that reason.
func TestPoolStateOverlapping(t *testing.T) {
	s := &clusterread.Objects{Pools: []v1alpha1.PodIPPool{*fixtures.PodIPPool("older", 1, "10.0.0.0/28"), *fixtures.PodIPPool("p", 2, "10.0.0.0/29")}}
	r := PoolRows(clusterview.New(s, clusterread.Operator{Settings: config.DefaultSettings()}))[1]
	if want := "10.0.0.0/29 overlaps 10.0.0.0/28 of pool older, which gives it out"; r.State != "Overlapping" || r.Message != want || r.Free > 0 {
		t.Errorf("pool %s is %s with %d free blocks: %s; want Overlapping with 0: %s", r.Pool, r.State, r.Free, r.Message, want)
	}
}
