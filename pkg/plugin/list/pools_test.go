package list

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/auditcmd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
)

// A pool's forecast follows from its history and its free blocks.
func TestPoolForecast(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pool := v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Generation: 1}}
	pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 29, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/25"}}}
	earlier := pool.DeepCopy()
	earlier.UID = "earlier"
	growing, ofEarlier := crd.NewHistory(&pool), crd.NewHistory(earlier)
	for ago := 24; ago >= 0; ago-- {
		growing.IPv4.HeldBlocks = append(growing.IPv4.HeldBlocks,
			v1alpha1.HeldBlocks{Since: metav1.NewTime(now.Add(-time.Duration(ago) * time.Hour)), Count: int64(100 - ago)})
	}
	ofEarlier.IPv4 = growing.IPv4
	for name, test := range map[string]struct {
		histories      []v1alpha1.PodIPPoolHistory
		perHour, lasts string
	}{
		"no history":                   {nil, "-", "-"},
		"one an hour, and 16 are free": {[]v1alpha1.PodIPPoolHistory{*growing}, "+1", "16h"},
		"that of an earlier pool":      {[]v1alpha1.PodIPPoolHistory{*ofEarlier}, "-", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &audit.Snapshot{Time: now, Pools: []v1alpha1.PodIPPool{pool}, Histories: test.histories}
			c := cluster.New(s, nil, auditcmd.Operator{Settings: controller.DefaultSettings()})
			r := PoolRows(c)[0]
			if perHour, lasts := perHour(r.BlocksPerHour), lasts(now, &r); r.Room != 16 || perHour != test.perHour || lasts != test.lasts {
				t.Errorf("room %d, per hour %s, lasts %s; want 16, %s, %s", r.Room, perHour, lasts, test.perHour, test.lasts)
			}
		})
	}
}

// A pool's addresses are those of the blocks that nodes hold.
func TestPoolCountsItsBlocks(t *testing.T) {
	pool := v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Generation: 1}}
	pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 29, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/25"}}}
	block := crd.NewBlock(netip.MustParsePrefix("10.0.0.0/29"), "p", "a", "")
	s := &audit.Snapshot{Pools: []v1alpha1.PodIPPool{pool}, Blocks: []v1alpha1.PodIPBlock{*block}}
	r := PoolRows(cluster.New(s, nil, auditcmd.Operator{Settings: controller.DefaultSettings()}))[0]
	if r.Nodes != 1 || r.Blocks.held() != 1 || r.Addresses != 6 {
		t.Errorf("%d nodes, %d blocks, %d addresses; want 1, 1, 6", r.Nodes, r.Blocks.held(), r.Addresses)
	}
}
