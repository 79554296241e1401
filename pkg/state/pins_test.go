package state

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// claimsNext returns the block that a node claims next, and forgets the claim.
func claimsNext(t *testing.T, c *Cluster, node string) string {
	t.Helper()
	cidr, _, err := c.Ledger.Claim(ipalloc.IPv4, node, "", c.Pools.Match(nil))
	if err != nil {
		return err.Error()
	}
	c.Ledger.Forget(node, cidr)
	return cidr.String()
}

// A pinned block goes to its node alone, which claims it before all others, as long as the pin is a
// block of a pool.
func TestPinnedBlock(t *testing.T) {
	last := fixtures.Prefix("10.0.0.12/30")
	c := clusterOf()
	free := func(what string, want uint64) {
		t.Helper()
		if n := c.FreeIn("p", ipalloc.IPv4); n != want {
			t.Errorf("%s: %d blocks are free, want %d", what, n, want)
		}
	}
	claims := func(what, node, want string) {
		t.Helper()
		if got := claimsNext(t, c, node); got != want {
			t.Errorf("%s: %s claims %s, want %s", what, node, got, want)
		}
	}
	c.Ledger.SetPin(crd.Pin{CIDR: fixtures.Prefix("10.0.0.0/29"), Node: "n"})
	free("a pin of a wrong size", 4)
	c.Ledger.SetPin(crd.Pin{CIDR: last, Node: "n"})
	free("pinned", 3)
	claims("pinned", "n", "10.0.0.12/30")
	claims("pinned", "m", "10.0.0.0/30")
	if away := c.Ledger.AwayPins(c.Pools.Get("p")); !slices.Equal(away, []netip.Prefix{last}) {
		t.Errorf("away are %v", away)
	}

	if before := c.Ledger.SetPin(crd.Pin{CIDR: last, Node: "m"}); before != "n" {
		t.Errorf("it was pinned to %q", before)
	}
	claims("moved", "n", "10.0.0.0/30")
	claims("moved", "m", "10.0.0.12/30")

	c.Ledger.Upsert(fixtures.Block("10.0.0.12/30", "p", "m", 1))
	claims("held", "m", "10.0.0.8/30") // its buddy
	if _, _, err := c.Ledger.ClaimPinned(ipalloc.IPv4, "m", "", c.Pools.Match(nil)); !errors.Is(err, ipalloc.ErrExhausted) {
		t.Errorf("held: another pinned block: %v", err)
	}
	if away := c.Ledger.AwayPins(c.Pools.Get("p")); len(away) > 0 {
		t.Errorf("held: away are %v", away)
	}
	c.Ledger.Remove(fixtures.Block("10.0.0.12/30", "p", "m", 1))
	free("returned", 3)

	c.Pools.Delete("p")
	c.Pools.Set(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	free("the pool came back", 3)
	var freed []netip.Prefix
	c.Ledger.Changed = func(list, _ []netip.Prefix, _ []string) { freed = append(freed, list...) }
	c.Ledger.RemovePin(last)
	free("no longer pinned", 4)
	if !slices.Contains(freed, last) {
		t.Errorf("freed are %v", freed)
	}
}

// A node claims a pinned block also if its own CiliumNode names addresses of it, as after a restore.
func TestPinOfNamedAddresses(t *testing.T) {
	c := clusterOf()
	c.Ledger.SetPin(crd.Pin{CIDR: fixtures.Prefix("10.0.0.12/30"), Node: "n"})
	cn := fixtures.CiliumNode("n", "1")
	cn.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.13", "10.0.0.14")
	c.Ledger.UpsertCiliumNode(ciliumnode.NewView(cn))
	if got := claimsNext(t, c, "n"); got != "10.0.0.12/30" {
		t.Errorf("it claims %s", got)
	}
}

// A block that the pool gives to no node is not claimed by a pin either.
func TestPinOfABlockThatIsKeptBack(t *testing.T) {
	edit := func(change func(*v1alpha1.PodIPPoolSpec)) func(*Cluster) {
		return func(c *Cluster) { c.Pools.Set(fixtures.Edited(fixtures.PodIPPool("p", 1, "10.0.0.0/28"), change)) }
	}
	for name, change := range map[string]func(c *Cluster){
		"another holds it":     func(c *Cluster) { c.Ledger.Upsert(fixtures.Block("10.0.0.12/30", "p", "m", 1)) },
		"another holds a part": func(c *Cluster) { c.Ledger.Upsert(fixtures.Block("10.0.0.12/31", "p", "m", 1)) },
		"another names a part": func(c *Cluster) {
			cn := fixtures.CiliumNode("m", "1")
			cn.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.13")
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(cn))
		},
		"it has a Node's": func(c *Cluster) {
			c.Ledger.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "x"}, fixtures.Prefixes("10.0.0.13/32"))
		},
		"the pool is paused":     edit(func(s *v1alpha1.PodIPPoolSpec) { s.Paused = true }),
		"its CIDR is cordoned":   edit(func(s *v1alpha1.PodIPPoolSpec) { s.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationCordon }),
		"the API server refuses": func(c *Cluster) { c.Ledger.Refuse("n", fixtures.Prefix("10.0.0.12/30")) },
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterOf()
			c.Ledger.SetPin(crd.Pin{CIDR: fixtures.Prefix("10.0.0.12/30"), Node: "n"})
			change(c)
			if cidr, _, err := c.Ledger.ClaimPinned(ipalloc.IPv4, "n", "", c.Pools.Match(nil)); err == nil {
				t.Errorf("it claims %s", cidr)
			}
		})
	}
}
