package state

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// Unserved is a family of a Cilium pool that a node needs without an address of it and without a
// PodIPPool for it.
type Unserved struct {
	Family ipalloc.Family
	// CiliumPool is the Cilium pool that pods ask for; "": the default one. The agent starts only
	// with an address of that.
	CiliumPool string
	// AtRestart: the agent runs without the family until it restarts.
	AtRestart bool
	// Pods are the pods that ask for it and have no address, sorted.
	Pods []string
	// Requested is the number of addresses the agent asks for.
	Requested int
	// Says describes it, for users.
	Says string
}

// OfAgent reports whether the agent needs it for itself.
func (u *Unserved) OfAgent() bool { return u.CiliumPool == "" }

// unserved returns the needs of the agent and the pods of a node that no PodIPPool serves. It
// returns none for a node without any PodIPPool, and where the operator does not change it.
func (c *Cluster) unserved(s *Snapshot, served map[string][]*crd.Pool, now time.Time) []Unserved {
	if s.Node == nil || len(served) == 0 || c.OptedOut(s.Node) || !s.AgentSeen || s.OtherIPAM || s.Adopting || s.OtherMode+s.Awaits+c.PausedBecause(s.Node, nil) != "" {
		return nil
	}
	var out []Unserved
	for _, f := range ipalloc.Families() {
		if len(crd.ForFamily(served[""], f, "")) == 0 && c.agentWants(s, f) && !c.hasAny(s, f) {
			out = append(out, c.unservedAgent(s, f, now))
		}
		asked := s.requested(f)
		for _, pool := range slices.Sorted(maps.Keys(asked)) {
			if u := asked[pool]; len(crd.ForFamily(served[pool], f, pool)) == 0 && !containsFamily(s.CiliumNode.Of(pool).PodCIDRs, f) {
				u.Family, u.CiliumPool, u.Says = f, pool, c.saysUnserved(s.Name, f, pool)
				out = append(out, *u)
			}
		}
	}
	return out
}

// agentWants reports whether the agent of a node asks for a family, or is configured for it.
func (c *Cluster) agentWants(s *Snapshot, f ipalloc.Family) bool {
	if view := s.CiliumNode; view != nil && view.BlockAssignment != nil && view.BlockAssignment.Reported() && view.BlockAssignment.Uses(f) {
		return true
	}
	return c.Cilium.Get().Enables(s.Node.Labels, f)
}

// hasAny reports whether the node has addresses of a family for its agent, or gets some of a
// block that it holds.
func (c *Cluster) hasAny(s *Snapshot, f ipalloc.Family) bool {
	var named []netip.Prefix
	if view := s.CiliumNode; view != nil {
		if named = view.PodCIDRs; view.BlockAssignment == nil {
			named = view.Named()
		}
	}
	return containsFamily(named, f) || slices.ContainsFunc(s.Blocks, func(b crd.Block) bool {
		return ipalloc.FamilyOf(b.CIDR.Addr()) == f && b.Phase != ipalloc.CoolingDown && c.CiliumPoolOf(b, s.CiliumNode) == ""
	})
}

func containsFamily(cidrs []netip.Prefix, f ipalloc.Family) bool {
	return slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) == f })
}

func (c *Cluster) unservedAgent(s *Snapshot, f ipalloc.Family, now time.Time) Unserved {
	u := Unserved{Family: f, AtRestart: s.CiliumNode.FamilyDisabled(f) && s.runsWithout(c.Agents, now)}
	of, runs := "", "its agent runs "+f.String()
	if c.Defaults.CiliumPools {
		of = " of Cilium's pool " + crd.DefaultCiliumPool
	}
	if u.AtRestart {
		runs = fmt.Sprintf("its agent is to run %s from its next start (enable-%s)", f, f)
	}
	u.Says = fmt.Sprintf("no PodIPPool gives %s%s to node %s, and %s: it does not start without an address", f, of, s.Name, runs)
	return u
}

// requested returns the requests of pods without an address, and of the agent, for Cilium pools
// other than the default one, by pool, for a family that the agent runs.
func (s *Snapshot) requested(f ipalloc.Family) map[string]*Unserved {
	view := s.CiliumNode
	if view == nil || view.BlockAssignment == nil || !view.BlockAssignment.Reported() || !view.BlockAssignment.Uses(f) {
		return nil
	}
	out := map[string]*Unserved{}
	of := func(pool string) *Unserved {
		if out[pool] == nil {
			out[pool] = &Unserved{}
		}
		return out[pool]
	}
	for _, p := range s.Pods {
		if pool := s.PoolRequests.Of(p.Name, f); pool != "" && !hasFamily(p.IPs, f) {
			of(pool).Pods = append(of(pool).Pods, p.Name)
		}
	}
	for _, pool := range view.CiliumPools() {
		if n := view.Of(pool).BlockAssignment.Requested[f]; pool != "" && n > 0 {
			of(pool).Requested = n
		}
	}
	return out
}

// saysUnserved says why a node has no address of a Cilium pool.
func (c *Cluster) saysUnserved(node string, f ipalloc.Family, ciliumPool string) string {
	if ciliumPool == noPool {
		return fmt.Sprintf("agents give no %s address to a pod that several CiliumPodIPPools select, or that accepts only one that selects it (%s) where none does", f, requireAnnotation)
	}
	says := fmt.Sprintf("no PodIPPool gives %s of Cilium's pool %s to node %s", f, ciliumPool, node)
	var elsewhere []string
	serving := c.Pools.Serving(ciliumPool)
	for _, p := range serving {
		if _, has := p.Ranges(f); has && !p.Inactive {
			elsewhere = append(elsewhere, p.Name)
		}
	}
	switch {
	case len(elsewhere) > 0:
		slices.Sort(elsewhere)
		return says + ", as those that have it do not select this node: " + strings.Join(elsewhere, ", ")
	case len(serving) > 0:
		return says
	}
	names := c.Pools.CiliumPools()
	slices.Sort(names)
	if near := suggest.Similar(ciliumPool, slices.Compact(names)); len(near) > 0 {
		says += " (did you mean " + suggest.OneOf(near) + "?)"
	}
	return says
}

// UnservedPods returns the pods with requests that no PodIPPool serves, and a description of that
// for users.
func (s *Snapshot) UnservedPods() map[string]string {
	out := map[string]string{}
	for i := range s.Unserved {
		for _, pod := range s.Unserved[i].Pods {
			if out[pod] != "" {
				out[pod] += "; "
			}
			out[pod] += s.Unserved[i].Says
		}
	}
	return out
}
