package state

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// Unserved is a family of a Cilium pool that a node needs without an address of it and without a
// PodIPPool for it.
type Unserved struct {
	Family ipalloc.Family
	// CiliumPool is the Cilium pool that pods ask for; "": the default one.
	CiliumPool string
	// OfAgent: the agent needs it for itself.
	OfAgent bool
	// AtRestart: the agent runs without the family, or the Cilium pool, until it restarts. Full: the
	// PodIPPools for it have no block left then.
	AtRestart, Full bool
	// Pods are the names of the pods that ask for it and have no address, sorted.
	Pods []string
	// Requested is the number of addresses the agent asks for.
	Requested int
	// Message describes it, for users, and names one that asks for it.
	Message string

	// ofPods is Message for each of Pods, and uids are their UIDs.
	ofPods []string
	uids   []types.UID
}

// unserved returns the needs of the agent and the pods of a node that no PodIPPool serves. It
// returns none for a node without any PodIPPool, and where the operator does not change it.
func (c *Cluster) unserved(s *Snapshot, served map[string][]*crd.Pool, now time.Time) []Unserved {
	if s.Standing.Kind != Served || !s.Standing.MayChange() || !s.AgentSeen {
		return nil
	}
	var out []Unserved
	for _, f := range ipalloc.Families() {
		if len(crd.ForFamily(served[""], f, "")) == 0 && c.agentWants(s, f) && !c.hasAny(s, f) {
			out = append(out, c.unservedAgent(s, f, now))
		}
		out = append(out, c.unservedPools(s, served, f, now)...)
	}
	return out
}

// unservedPools returns the requests for Cilium pools other than the default one.
func (c *Cluster) unservedPools(s *Snapshot, served map[string][]*crd.Pool, f ipalloc.Family, now time.Time) (out []Unserved) {
	requests := c.requested(s, f, now)
	for _, pool := range slices.Sorted(maps.Keys(requests)) {
		u := requests[pool]
		owner := crd.OwnerOfPool(pool)
		pools := crd.ForFamily(c.servedFor(served, pool), f, pool)
		lists := containsFamily(s.CiliumNode.Of(pool).PodCIDRs, f)
		u.Full = len(pools) > 0 && u.AtRestart && !c.anyFree(f, pools)
		isServed := len(pools) > 0 && !u.Full || lists
		if isServed { // all pods, or those of its owner
			u.Pods = slices.DeleteFunc(u.Pods, func(name string) bool { return owner == "" || s.isOfOwner(name, f, pool) })
		}
		if !isServed || len(u.Pods) > 0 {
			u.Family = f
			u.CiliumPool = pool
			c.describeUnserved(s, u)
			out = append(out, *u)
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
		named = view.PodCIDRs
		if view.Addresses != nil {
			named = view.PodRanges()
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
	u := Unserved{Family: f, OfAgent: true, AtRestart: s.CiliumNode.FamilyDisabled(f) && s.checkRunsWithout(c.Agents, now)}
	scope := ""
	runs := "its agent runs " + f.String()
	if c.Defaults.CiliumPools {
		scope = " of Cilium's pool " + crd.DefaultCiliumPool
	}
	if u.AtRestart {
		runs = fmt.Sprintf("its agent is to run %s from its next start (enable-%s)", f, f)
	}
	u.Message = fmt.Sprintf("no PodIPPool gives %s%s to node %s, and %s: it does not start without an address", f, scope, s.Name, runs)
	return u
}

// requested returns the requests of pods without an address, and of the agent, for Cilium pools
// other than "default", by pool, for a family that the agent runs.
func (c *Cluster) requested(s *Snapshot, f ipalloc.Family, now time.Time) map[string]*Unserved {
	if s.CiliumNode == nil || s.CiliumNode.BlockAssignment == nil {
		return nil
	}
	out, byDefault := c.requestedByAgent(s, f, now)
	if w := s.CiliumNode.BlockAssignment; byDefault == "" && (!w.Reported() || !w.Uses(f)) {
		return nil
	}
	for _, p := range s.Pods {
		if hasFamily(p.IPs, f) {
			continue
		}
		choice := s.PoolChoices.Of(p.Name, f)
		pool := choice.Pool
		if choice.By == originDefault {
			pool = byDefault
		}
		if pool == "" {
			continue
		}
		if out[pool] == nil {
			out[pool] = &Unserved{}
		}
		out[pool].Pods = append(out[pool].Pods, p.Name)
	}
	return out
}

// requestedByAgent returns the requests of the agent of a node, now and at its next start, and the pool
// among them that Cilium's setting makes the default one of the node instead of "default"; "": none.
func (c *Cluster) requestedByAgent(s *Snapshot, f ipalloc.Family, now time.Time) (out map[string]*Unserved, byDefault string) {
	out = map[string]*Unserved{}
	for _, pool := range s.CiliumNode.CiliumPools() {
		n := s.CiliumNode.Of(pool).BlockAssignment.Requested[f]
		if pool == "" || n == 0 {
			continue
		}
		out[pool] = &Unserved{Requested: n, OfAgent: pool == c.Cilium.Get().Setting(s.Node.Labels, ciliumconfig.DefaultPoolSetting)}
		if out[pool].OfAgent {
			byDefault = pool
		}
	}
	for pool := range c.Cilium.Get().PreAllocation(s.Node.Labels) {
		if pool == crd.DefaultCiliumPool || s.CiliumNode.BlockAssignment.SingleBlock {
			continue
		}
		if out[pool] == nil {
			out[pool] = &Unserved{}
		}
		out[pool].OfAgent = true
		out[pool].AtRestart = pool != byDefault && s.checkRunsWithout(c.Agents, now)
	}
	return out, byDefault
}

// describeUnserved says, for the node and each pod, why a node has no address of a Cilium pool, and
// who asks for one.
func (c *Cluster) describeUnserved(s *Snapshot, u *Unserved) {
	reason := ""
	if u.CiliumPool != noPool {
		reason = c.whyUnserved(s, u) + "; "
	}
	for _, pod := range u.Pods {
		u.ofPods = append(u.ofPods, reason+s.PoolChoices.Of(pod, u.Family).describe(pod, u.Family))
		u.uids = append(u.uids, c.Pods.uid(s.Name, pod))
	}
	switch {
	case u.OfAgent && u.CiliumPool == c.Cilium.Get().Setting(s.Node.Labels, ciliumconfig.DefaultPoolSetting):
		u.Message = reason + "Cilium's setting " + ciliumconfig.DefaultPoolSetting + " makes it the node's default: the agent does not start without an address"
	case u.AtRestart:
		u.Message = reason + "Cilium's setting " + ciliumconfig.PreAllocationSetting + " asks for it: the agent does not start again without an address"
	case u.OfAgent:
		u.Message = reason + "Cilium's setting " + ciliumconfig.PreAllocationSetting + " asks for it: the agent does not start without an address"
	case len(u.Pods) > 0:
		u.Message = u.ofPods[0]
	default:
		u.Message = reason + "its agent asks for it"
	}
}

// whyUnserved says why a node has no address of a Cilium pool, and suggests a similar one.
func (c *Cluster) whyUnserved(s *Snapshot, u *Unserved) string {
	f := u.Family
	ciliumPool := u.CiliumPool
	owner := crd.OwnerOfPool(ciliumPool)
	isOfOwner := func(pod string) bool { return s.isOfOwner(pod, f, ciliumPool) }
	if owner != "" && len(u.Pods) > 0 && !slices.ContainsFunc(u.Pods, isOfOwner) {
		return fmt.Sprintf("Cilium's pool %s is for %s alone", ciliumPool, crd.OwnerWords(owner))
	}
	if owner != "" {
		return fmt.Sprintf("no PodIPPool that selects node %s has an %s address that a PodIPPin keeps for %s: "+
			"keep the pod on nodes of the pin's pool, or delete the pin and the pod gets another address", s.Name, f, crd.OwnerWords(owner))
	}
	message := fmt.Sprintf("no PodIPPool gives %s of Cilium's pool %s to node %s", f, ciliumPool, s.Name)
	if u.Full {
		return message + ", as none has a free block"
	}
	var elsewhere, serving []string
	for _, p := range c.Pools.Serving(ciliumPool) {
		if _, ok := p.Ranges(f); ok && !p.Inactive {
			elsewhere = append(elsewhere, p.Name)
		}
		serving = append(serving, p.Name)
	}
	slices.Sort(elsewhere)
	slices.Sort(serving)
	if len(elsewhere) > 0 {
		return message + ", as the PodIPPools that serve it do not select this node: " + suggest.Few(elsewhere)
	}
	if len(serving) > 0 {
		return fmt.Sprintf("%s, as the PodIPPools that serve it have no %s: %s", message, f, suggest.Few(serving))
	}
	message += ", as none has this ciliumPoolName"
	names := c.Pools.CiliumPools()
	slices.Sort(names)
	if near := suggest.Similar(ciliumPool, slices.Compact(names)); len(near) > 0 {
		message += " (did you mean " + suggest.OneOf(near) + "?)"
	}
	return message
}

// UnservedPod is a pod with a request that no PodIPPool serves.
type UnservedPod struct {
	UID types.UID
	// Message describes the request, for users.
	Message string
}

// UnservedPods returns the pods, by name, with requests that no PodIPPool serves.
func (s *Snapshot) UnservedPods() map[string]UnservedPod {
	out := map[string]UnservedPod{}
	for _, u := range s.Unserved {
		for i, pod := range u.Pods {
			message := u.ofPods[i]
			if earlier := out[pod].Message; earlier != "" {
				message = earlier + "; " + message
			}
			out[pod] = UnservedPod{u.uids[i], message}
		}
	}
	return out
}
