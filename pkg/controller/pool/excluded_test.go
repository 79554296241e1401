package pool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A pool reports the addresses it covers, and does not count blocks that are never assigned.
func TestPoolReportsClusterAddresses(t *testing.T) {
	obj := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	ledger := state.ReadyLedger(fixtures.Block("10.0.0.0/30", "p", "n", 1))
	pools := state.NewPools(fixtures.Defaults(), ledger)
	pools.Set(obj)
	ledger.Exclusions.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "a"}, fixtures.Prefixes("10.0.0.1/32", "10.0.0.9/32", "10.7.0.1/32"))
	pool := pools.Get("p")
	whole := *pool
	whole.WholeBlocks = true
	excluded := ledger.Exclusions.ExcludedFrom(pool)
	usage := poolUsage{PoolUsage: state.UsageOf(pools.Get("p").WithSkipped(exclude.CIDRs(excluded)), ledger.PoolBlocks("p"), ledger.Free)}
	usage.fill(&obj.Status)
	want := v1alpha1.StateCounts{Assignable: 3, Held: 1, InService: 1, Free: 2}
	if diff := cmp.Diff(want, obj.Status.IPv4.Blocks); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	setCondition(obj, v1alpha1.PoolCoversCluster, excludedCondition(pool, excluded, nil, ledger.HolderOf), fixtures.Noon())
	message := messageOf(obj.Status.Conditions, v1alpha1.PoolCoversCluster)
	if !strings.Contains(message, "10.0.0.1 of Node a (in block 10.0.0.0/30 of node n), 10.0.0.9 of Node a. No pod") || strings.Contains(message, "too") {
		t.Errorf("the message is %q", message)
	}
	setCondition(obj, v1alpha1.PoolCoversCluster, excludedCondition(&whole, excluded, nil, ledger.HolderOf), fixtures.Noon())
	if message := messageOf(obj.Status.Conditions, v1alpha1.PoolCoversCluster); strings.Contains(message, "No pod gets") {
		t.Errorf("where agents give any address of a block, the message is %q", message)
	}
	shared := []exclude.Range{{CIDR: fixtures.Prefix("10.0.0.0/28"), By: exclude.Claimant{Kind: exclude.LoadBalancerPool, Name: "lb"}}}
	setCondition(obj, v1alpha1.PoolCoversCluster, excludedCondition(pool, nil, shared, ledger.HolderOf), fixtures.Noon())
	if message := messageOf(obj.Status.Conditions, v1alpha1.PoolCoversCluster); !strings.HasPrefix(message, "Objects ask for more than a quarter of the blocks of a CIDR: pods can get 10.0.0.0/28 of CiliumLoadBalancerIPPool lb, too. Use ") {
		t.Errorf("the message is %q", message)
	}
	if c := excludedCondition(pool, excluded[:1], shared, ledger.HolderOf); c == nil || !strings.Contains(c.message, "10.0.0.1 of Node a") || !strings.Contains(c.message, "pods can get 10.0.0.0/28") {
		t.Errorf("of addresses of both kinds it says %+v", c)
	}
	if c := excludedCondition(pool, nil, nil, ledger.HolderOf); c.status != metav1.ConditionFalse || c.reason != ReasonCoversNone {
		t.Errorf("it covers none, and says %+v", c)
	}
}
