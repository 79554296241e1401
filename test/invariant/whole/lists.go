package whole

import (
	"net/netip"
	"slices"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

func (r *Rules) seeList(c invariant.Change) {
	before, after, who := r.lists[c.Name], []Entry(nil), Unknown
	delete(r.lists, c.Name)
	if c.New != nil {
		after, _ = r.carrier.Entries(c.New)
		r.lists[c.Name] = after
	}
	if slices.Equal(before, after) {
		return
	}
	if c.New != nil {
		who = writer(c, r.carrier.Fields)
	}
	r.writes[who]++
	for i, e := range after {
		if !contains(before, e) {
			r.note(c, e.CIDR, IsAssigned)
			r.came(c, e, slices.Delete(slices.Clone(after), i, i+1), who)
		}
	}
	for _, e := range before {
		if contains(after, e) {
			continue
		}
		r.note(c, e.CIDR, IsUnassigned)
		switch {
		case c.New != nil:
			r.taken++
			r.went(c, e, who)
		case c.Kind == invariant.KindCiliumNode && r.nodes[c.Name] != nil && !invariant.OwnedByAnother(c.Old, r.nodes[c.Name]):
			r.inUse(c, e.CIDR, "deleted with its object, under its Node,")
		}
	}
	if who == OperatorWriter {
		r.rewritten(c, before, after)
	}
	delete(r.last, c.Name)
	if c.New == nil && r.nodes[c.Name] != nil {
		r.last[c.Name] = before
	}
}

// contains reports whether a CIDR is listed for the same pool, parked or not.
func contains(list []Entry, e Entry) bool {
	return slices.ContainsFunc(list, func(o Entry) bool { return o.Pool == e.Pool && o.CIDR == e.CIDR })
}

// overlaps reports whether any CIDR of a list overlaps another.
func overlaps(list []Entry, cidr netip.Prefix) bool {
	return slices.ContainsFunc(list, func(e Entry) bool { return e.CIDR.Overlaps(cidr) })
}

// came checks rule 1 for a CIDR that has just been added to an agent's list, beside others. CIDRs of
// a new object do not count if a user wrote them, or if the operator restores an entry of the
// deleted object that no block covers and no pool could have cut.
func (r *Rules) came(c invariant.Change, e Entry, beside []Entry, who string) {
	for other, list := range r.lists {
		if other != c.Name && overlaps(list, e.CIDR) {
			r.find(c, 1, "assigned %s by %s, which overlaps a CIDR of %s", e.CIDR, who, other)
		}
	}
	if c.Old == nil && (who != OperatorWriter || contains(r.last[c.Name], e) && !r.isCut(c.Name, e)) {
		return
	}
	if overlaps(beside, e.CIDR) {
		r.find(c, 1, "assigned %s by %s beside a CIDR that it overlaps", e.CIDR, who)
	}
	for _, b := range r.blocks {
		if b.CIDR == e.CIDR && b.Node == c.Name && (!b.Cooling || c.Old != nil && late(c, b)) {
			return
		}
	}
	r.find(c, 1, "assigned %s by %s, and it has no such block in service", e.CIDR, who)
}

// isCut reports whether a block covers a part of a CIDR, or a pool that is not being deleted could
// have cut it for a node.
func (r *Rules) isCut(node string, e Entry) bool {
	for _, b := range r.blocks {
		if b.CIDR.Overlaps(e.CIDR) {
			return true
		}
	}
	for _, pool := range r.pools {
		if pool != nil && pool.DeletionTimestamp == nil && selects(pool, r.nodes[node]) && crd.CiliumPoolObjectName(pool) == e.Pool && cuts(pool, e.CIDR) {
			return true
		}
	}
	return false
}

func selects(pool *v1alpha1.PodIPPool, node client.Object) bool {
	if pool.Spec.NodeSelector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector)
	return err == nil && node != nil && s.Matches(labels.Set(node.GetLabels()))
}

// cuts reports whether a CIDR is on the grid of a pool.
func cuts(pool *v1alpha1.PodIPPool, cidr netip.Prefix) bool {
	var ranges []v1alpha1.PoolCIDR
	var size int32
	if v4, v6 := pool.Spec.IPv4, pool.Spec.IPv6; cidr.Addr().Is4() && v4 != nil {
		ranges, size = v4.CIDRs, v4.BlockSize
	} else if cidr.Addr().Is6() && v6 != nil {
		ranges, size = v6.CIDRs, v6.BlockSize
	}
	return int(size) == cidr.Bits() && slices.ContainsFunc(ranges, func(c v1alpha1.PoolCIDR) bool {
		p, err := netip.ParsePrefix(c.CIDR)
		return err == nil && p.Contains(cidr.Addr())
	})
}

// rewritten checks a list that the operator has written: rule 3, that it stays in the agents'
// order, and rule 2 for CIDRs that it parks. One CIDR drains at a time, and another entry of its
// pool is left, without which its agent does not see that.
func (r *Rules) rewritten(c invariant.Change, before, after []Entry) {
	if slices.IsSortedFunc(before, Entry.Compare) && !slices.IsSortedFunc(after, Entry.Compare) {
		r.find(c, 3, "the list was in order, and now is %v: its agent will write it again", after)
	}
	parked := slices.DeleteFunc(slices.Clone(after), func(e Entry) bool { return !e.Parked })
	for _, e := range parked {
		if slices.Contains(before, e) {
			continue
		}
		if len(parked) > 1 && !r.carrier.Closes {
			r.find(c, 2, "%v are parked at once", parked)
		}
		left := func(p ipamtypes.IPAMPoolAllocation) bool { return p.Pool == e.Pool } // with or without a CIDR
		if !r.carrier.Closes && !slices.ContainsFunc(c.New.(*ciliumv2.CiliumNode).Spec.IPAM.Pools.Allocated, left) {
			r.find(c, 2, "%s was parked, and no entry of its pool is left", e)
		}
		if !r.drained[drain{c.Name, e.CIDR}] {
			r.find(c, 2, "%s was parked, and does not drain", e)
		}
	}
}

// seeRequests is rule 7 for the agents' requests.
func (r *Rules) seeRequests(c invariant.Change) {
	old, _ := c.Old.(*ciliumv2.CiliumNode)
	now, _ := c.New.(*ciliumv2.CiliumNode)
	if old != nil && now != nil && !equality.Semantic.DeepEqual(old.Spec.IPAM.Pools.Requested, now.Spec.IPAM.Pools.Requested) &&
		writer(c, [][]string{{"f:spec", "f:ipam", "f:pools", "f:requested"}}) == OperatorWriter {
		r.find(c, 7, "requests of the agent were changed by %s", OperatorWriter)
	}
}

// late reports whether a write may have been decided on before a block began to cool
// down: its object had not changed since.
func late(c invariant.Change, b block) bool { return versionOf(c.Old) < b.from }

// went is rule 2 for a CIDR that is no longer assigned.
func (r *Rules) went(c invariant.Change, e Entry, who string) {
	if who != r.carrier.Takes {
		r.find(c, 2, "%s removed by %s", e.CIDR, who)
	}
	if r.carrier.Closes && !e.Parked {
		r.find(c, 2, "%s removed by %s while pods may get addresses of it", e.CIDR, who)
	}
	r.inUse(c, e.CIDR, "removed by "+who)
}

// isLeft reports whether an agent requests addresses, but none of the family of addr: it does not run
// the family, and goes on naming the address that it had in it.
func isLeft(o client.Object, addr netip.Addr) bool {
	cn, ok := o.(*ciliumv2.CiliumNode)
	if !ok || len(cn.Spec.IPAM.Pools.Requested) == 0 {
		return false
	}
	return !slices.ContainsFunc(cn.Spec.IPAM.Pools.Requested, func(p ipamtypes.IPAMPoolRequest) bool {
		return addr.Is4() && p.Needed.IPv4Addrs > 0 || addr.Is6() && p.Needed.IPv6Addrs > 0
	})
}

// inUse is rule 2 for a CIDR that went somehow, while anything says that it is used.
func (r *Rules) inUse(c invariant.Change, cidr netip.Prefix, how string) {
	for _, addr := range r.own[c.Name] {
		if cidr.Contains(addr) && !isLeft(c.New, addr) {
			r.find(c, 2, "%s %s while the agent itself has %s", cidr, how, addr)
		}
	}
	for name, pod := range r.pods[c.Name] {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			if addr, err := netip.ParseAddr(ip.IP); err == nil && cidr.Contains(addr) && pod.DeletionTimestamp == nil {
				r.find(c, 2, "%s %s while pod %s has %s", cidr, how, name, addr)
			}
		}
	}
}
