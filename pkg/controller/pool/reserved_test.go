package pool

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A block is routed as a whole, so a block that overlaps a reserved range is not claimed, unless
// the pool publishes the remainder.
func TestReservedBlocksAreSkipped(t *testing.T) {
	for policy, want := range map[v1alpha1.ReservedBlockPolicy]struct {
		first netip.Prefix
		free  uint64
	}{
		"":                          {fixtures.Prefix("10.0.0.4/30"), 3},
		v1alpha1.SkipReservedBlocks: {fixtures.Prefix("10.0.0.4/30"), 3},
		v1alpha1.PublishRemainder:   {fixtures.Prefix("10.0.0.0/30"), 4},
	} {
		obj := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
		obj.Spec.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.1/32", Description: "gateway"}}
		obj.Spec.ReservedBlockPolicy = policy
		ledger := state.ReadyLedger()
		pools := state.NewPools(fixtures.Defaults(), ledger)
		pools.Set(obj)
		cut, _ := pools.Get("p").Cut(ipalloc.IPv4)
		if got := ledger.Free(cut); got != want.free {
			t.Errorf("%q: %d blocks are free, want %d", policy, got, want.free)
		}
		if of := state.FamiliesOf(ledger, pools.Get("p")); len(of) != 1 || of[0].Full() != 0 {
			t.Errorf("%q: an empty pool has %+v", policy, of)
		}
		cidr, _, err := ledger.Claim(ipalloc.IPv4, "n", "", []*crd.Pool{pools.Get("p")})
		if err != nil || cidr != want.first {
			t.Errorf("%q: claimed %s, %v, want %s", policy, cidr, err, want.first)
		}
	}
}

// A block held when its range becomes reserved stays with its node, is reported
// until it has left, and is not assigned again.
func TestReservedBlockHeldBefore(t *testing.T) {
	obj := fixtures.PodIPPool("p", 1, "10.0.0.0/29")
	obj.Spec.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.1/32", Description: "gateway"}}
	held := fixtures.Block("10.0.0.0/30", "p", "a", 1)
	tests := map[string]struct {
		obj    *v1alpha1.PodIPPool
		blocks []crd.Block
		want   metav1.ConditionStatus
		says   string
	}{
		"nothing is reserved": {obj: fixtures.PodIPPool("p", 1, "10.0.0.0/29"), blocks: []crd.Block{held}, want: metav1.ConditionFalse, says: "no reserved range keeps"},
		"the rest is published": {
			obj:    fixtures.Edited(obj, func(s *v1alpha1.PodIPPoolSpec) { s.ReservedBlockPolicy = v1alpha1.PublishRemainder }),
			blocks: []crd.Block{held}, want: metav1.ConditionFalse, says: "no reserved range keeps",
		},
		"held before": {obj: obj, blocks: []crd.Block{held, fixtures.Block("10.0.0.4/30", "p", "b", 2)}, want: metav1.ConditionTrue,
			says: "block 10.0.0.0/30 of node a overlaps reserved 10.0.0.1/32 (gateway)"},
		"drains":   {obj: obj, blocks: []crd.Block{fixtures.At(held, 2, ipalloc.Draining)}, want: metav1.ConditionTrue, says: "10.0.0.0/30"},
		"has left": {obj: obj, blocks: []crd.Block{fixtures.At(held, 2, ipalloc.CoolingDown)}, want: metav1.ConditionFalse},
		"not held": {obj: obj, want: metav1.ConditionFalse},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status := statusOf(t, test.obj, test.blocks...)
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.PoolReservedHeld)
			if c.Status != test.want || !strings.Contains(c.Message, test.says) {
				t.Errorf("%s: %s", c.Status, c.Message)
			}
		})
	}
}

// Where agents are assigned whole blocks, a reservation withholds no address of a held one.
func TestReservedBlockOfAgentsWithWholeBlocks(t *testing.T) {
	obj := fixtures.PodIPPool("p", 1, "10.0.0.0/29")
	obj.Spec.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.1/32"}}
	pool := *fixtures.PoolOf(t, obj)
	pool.WholeBlocks = true
	message := reservedCondition(&pool, []crd.Block{fixtures.Block("10.0.0.0/30", "p", "a", 1)}).message
	if !strings.Contains(message, "reserved ones too") || strings.Contains(message, "gets a replacement first") {
		t.Error(message)
	}
}

// A message about many blocks names a few.
func TestReservedMessageIsBounded(t *testing.T) {
	obj := fixtures.PodIPPool("p", 1, "10.0.0.0/24")
	obj.Spec.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.0.0.0/25"}}
	var held []crd.Block
	cidr := fixtures.Prefix("10.0.0.0/30")
	for i := range 32 {
		held = append(held, fixtures.Block(cidr.String(), "p", "n", i+1))
		addr := cidr.Addr()
		for range 4 {
			addr = addr.Next()
		}
		cidr = netip.PrefixFrom(addr, 30)
	}
	c := meta.FindStatusCondition(statusOf(t, obj, held...).Conditions, v1alpha1.PoolReservedHeld)
	if c == nil || strings.Count(c.Message, "of node") != namedBlocks || !strings.Contains(c.Message, "and 27 more") {
		t.Errorf("%+v", c)
	}
}
