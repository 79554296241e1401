package crd_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func TestTally(t *testing.T) {
	pool, err := crd.PoolFrom(&v1alpha1.PodIPPool{Spec: v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/16")}}, defaults())
	if err != nil {
		t.Fatal(err)
	}
	block := func(cidr string, phase ipalloc.Phase) crd.Block {
		return crd.Block{CIDR: netip.MustParsePrefix(cidr), Phase: phase}
	}
	blocks := []crd.Block{
		block("10.0.0.0/27", ipalloc.InService),
		block("10.0.1.0/24", ipalloc.InService),   // eight of the pool's
		block("10.0.2.0/26", ipalloc.Draining),    // two
		block("10.0.3.0/28", ipalloc.CoolingDown), // one together with the next
		block("10.0.3.16/29", ipalloc.Draining),
		block("10.0.4.0/32", ipalloc.CoolingDown),
		block("fd00::/122", ipalloc.InService), // the pool has no IPv6
		block("fd00::40/122", ipalloc.InService),
	}
	want := [2][3]int64{ipalloc.IPv4: {9, 3, 1}, ipalloc.IPv6: {2, 0, 0}}
	large := crd.NewTally(poolFrom(t, object("p", v1alpha1.PodIPPoolSpec{IPv6: ipv6(126, "fd00::/32")})))
	large.Add(block("fd00::/48", ipalloc.InService))
	large.Add(block("fd00:0:1::/48", ipalloc.InService))
	checkEqual(t, "of large blocks", [2][3]int64{ipalloc.IPv6: {1 << 41, 0, 0}}, large.Sum())
	for range 10 { // the order does not matter
		rand.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		tally := crd.NewTally(pool)
		for _, b := range blocks {
			tally.Add(b)
		}
		checkEqual(t, "tally", want, tally.Sum())
	}
}
