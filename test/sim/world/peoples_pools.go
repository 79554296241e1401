package world

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	slimmetav1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// enableAskingEdits enables what users do about Cilium pools, in the form "how=whom".
func (w *World) enableAskingEdits() {
	if w.cfg.Asking == nil {
		return
	}
	for _, pool := range w.cfg.Asking.Served {
		if how := w.serving(pool); how != "" {
			w.canIf(PoolEdits, PoolEdit, people, how+"="+servedName(pool))
		}
	}
	for _, name := range w.ciliumPools() {
		for _, how := range CiliumPoolEdits() {
			if (how == "make") == (w.ciliumPool(name) == nil) {
				w.canIf(PoolEdits, CiliumPoolEdit, people, how+"="+name)
			}
		}
	}
	for _, what := range append(w.asks(), "") {
		w.canIf(PoolEdits, NamespaceEdit, people, asking+"="+what)
	}
}

// servedNow returns the PodIPPools of Asking.Served that exist.
func (w *World) servedNow() []string {
	var out []string
	if w.cfg.Asking != nil {
		for _, pool := range w.cfg.Asking.Served {
			if w.api.Get(KindPool, pool.Name) != nil && !slices.Contains(out, pool.Name) {
				out = append(out, pool.Name)
			}
		}
	}
	return out
}

func servedName(pool *v1alpha1.PodIPPool) string { return pool.Name + "/" + crd.CiliumPoolOf(pool) }

// serving returns what users can do about a PodIPPool: create it or delete it; "": neither.
func (w *World) serving(pool *v1alpha1.PodIPPool) string {
	switch obj, ok := w.api.Get(KindPool, pool.Name).(*v1alpha1.PodIPPool); {
	case !ok:
		return "serve"
	case obj.DeletionTimestamp == nil && crd.CiliumPoolOf(obj) == crd.CiliumPoolOf(pool):
		return "unserve"
	}
	return ""
}

// editServed creates or deletes a PodIPPool, by servedName.
func (w *World) editServed(how, name string) {
	i := slices.IndexFunc(w.cfg.Asking.Served, func(p *v1alpha1.PodIPPool) bool { return servedName(p) == name })
	pool := w.cfg.Asking.Served[i]
	w.Counts.Faults["PodIPPool to "+how]++
	if how == "serve" {
		w.must(w.api.Create(pool))
		return
	}
	w.mustNot(w.api.Delete(KindPool, pool.Name, nil, nil))
}

// makeOrDelete creates or deletes a whole pool, or edits a selector, if what asks for that.
func (w *World) makeOrDelete(what string) bool {
	how, name, serving := strings.Cut(what, "=")
	switch {
	case what == "other":
		w.otherPool()
	case how == "selector":
		w.editSelector(name)
	case serving:
		w.editServed(how, name)
	default:
		return false
	}
	return true
}

func (w *World) otherPool() {
	if w.cfg.Other == nil {
		return
	}
	switch obj := w.api.Get(KindPool, w.cfg.Other.Name); {
	case obj == nil:
		w.must(w.api.Create(w.cfg.Other))
	case obj.GetDeletionTimestamp() == nil:
		w.mustNot(w.api.Delete(KindPool, obj.GetName(), nil, nil))
	}
}

// CiliumPoolEdits are what users do to a CiliumPodIPPool: create one by hand, delete it, remove
// or add the operator's label, give it ranges of another family, and let it select pods by
// their labels, by those of their namespace, all of them, or none.
func CiliumPoolEdits() []string {
	return []string{"make", "delete", "strip", "mark", "family", "pick-pods", "pick-namespaces", "pick-all", "pick-none"}
}

func (w *World) editCiliumPool(how, name string) {
	w.Counts.Faults["CiliumPodIPPool to "+how]++
	switch how {
	case "make":
		obj := ciliumpool.Carrier(name)
		obj.Spec.IPv4 = &ciliumv2alpha1.IPv4PoolSpec{CIDRs: []ciliumv2alpha1.PoolCIDR{"10.200.0.0/16"}, MaskSize: 24}
		w.must(w.api.Create(obj))
		return
	case "delete":
		w.mustNot(w.api.Delete(KindCiliumPool, name, nil, nil))
		return
	}
	obj := w.ciliumPool(name).DeepCopy()
	byLabel := &slimmetav1.LabelSelector{MatchLabels: map[string]slimmetav1.MatchLabelsValue{asksLabel: name}}
	s := &obj.Spec
	switch how {
	case "strip":
		delete(obj.Labels, ciliumpool.ManagedByLabel)
	case "mark":
		obj.Labels = maps.Clone(obj.Labels)
		if obj.Labels == nil {
			obj.Labels = map[string]string{}
		}
		obj.Labels[ciliumpool.ManagedByLabel] = ciliumpool.ManagedBy
	case "family":
		s.IPv4 = nil
		if s.IPv6 == nil {
			s.IPv6 = &ciliumv2alpha1.IPv6PoolSpec{CIDRs: []ciliumv2alpha1.PoolCIDR{"fd00:200::/64"}, MaskSize: 96}
		}
	case "pick-pods":
		s.PodSelector, s.NamespaceSelector = byLabel, nil
	case "pick-namespaces":
		s.PodSelector, s.NamespaceSelector = nil, byLabel
	case "pick-all":
		s.PodSelector, s.NamespaceSelector = &slimmetav1.LabelSelector{}, nil
	case "pick-none":
		s.PodSelector, s.NamespaceSelector = nil, nil
	}
	w.must(w.api.Update(obj, false))
}

// editAsking edits a CiliumPodIPPool, or what a namespace requests.
func (w *World) editAsking(a Action) {
	before, after, _ := strings.Cut(a.What, "=")
	if a.Verb == CiliumPoolEdit {
		w.editCiliumPool(before, after)
		return
	}
	namespace := w.api.Get(KindNamespace, before).(*corev1.Namespace).DeepCopy()
	ask(namespace, after)
	w.must(w.api.Update(namespace, false))
}

// listForeign lists by hand a CIDR that no PodIPPool knows.
func (m *machine) listForeign(cn *ciliumv2.CiliumNode, pool string) {
	foreign := netip.MustParsePrefix("172.17." + m.name[1:] + ".0/30")
	if slices.ContainsFunc(allocatedIn(cn), foreign.Overlaps) {
		return
	}
	lists := &cn.Spec.IPAM.Pools.Allocated
	i, there := slices.BinarySearchFunc(*lists, pool, func(e ipamtypes.IPAMPoolAllocation, name string) int { return strings.Compare(e.Pool, name) })
	if there {
		(*lists)[i].CIDRs = append((*lists)[i].CIDRs, iputil.PrefixFrom(foreign))
		return
	}
	*lists = slices.Insert(*lists, i, allocatedOf([]listed{{pool, foreign}})[0])
}

func (w *World) editPool(what string) {
	if w.makeOrDelete(what) {
		return
	}
	stored, ok := w.api.Get(KindPool, w.cfg.Pools[0].Name).(*v1alpha1.PodIPPool)
	if !ok {
		return
	}
	pool := stored.DeepCopy()
	cidrs := &pool.Spec.IPv4.CIDRs
	switch what {
	case "add":
		*cidrs = w.withSpare(*cidrs)
	case "cordon":
		toggle(&(*cidrs)[len(*cidrs)-1], v1alpha1.AllocationCordon)
	case "drain":
		toggle(&(*cidrs)[len(*cidrs)-1], v1alpha1.AllocationDrain)
	case "remove":
		if len(*cidrs) > 1 {
			*cidrs = (*cidrs)[:len(*cidrs)-1]
			pool.Spec.Reserved = nil
		}
	case "min-free":
		n := int32(1)
		if pool.Spec.Expand.MinFree != nil && *pool.Spec.Expand.MinFree == 1 {
			n = 3
		}
		pool.Spec.Expand.MinFree = &n
	case "reserve":
		reserve(pool)
	case "pause":
		pool.Spec.Paused = !pool.Spec.Paused
	case "maintenance":
		w.cfg.Maintenance.setMaintenance(pool)
	case "family":
		w.switchFamily(pool)
	}
	w.must(w.api.Update(pool, false))
}

// withSpare adds the first spare range that is not there yet.
func (w *World) withSpare(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
	for _, spare := range w.cfg.Spare {
		if !slices.ContainsFunc(cidrs, func(c v1alpha1.PoolCIDR) bool { return c.CIDR == spare.CIDR }) {
			return append(cidrs, spare)
		}
	}
	return cidrs
}

// toggle sets the policy of a range, or lets it give out blocks again.
func toggle(c *v1alpha1.PoolCIDR, policy v1alpha1.AllocationPolicy) {
	if c.AllocationPolicy == policy {
		policy = v1alpha1.AllocationAllocate
	}
	c.AllocationPolicy = policy
}

// reserve first reserves an address of the pool and withholds its block, then publishes the
// remainder of the block, and then ends the reservation.
func reserve(pool *v1alpha1.PodIPPool) {
	s := &pool.Spec
	switch {
	case s.Reserved == nil:
		rng := netip.MustParsePrefix(s.IPv4.CIDRs[0].CIDR)
		s.Reserved = []v1alpha1.ReservedCIDR{{CIDR: fmt.Sprintf("%s/32", rng.Addr().Next().Next())}}
		s.ReservedBlockPolicy = v1alpha1.SkipReservedBlocks
	case s.ReservedBlockPolicy == v1alpha1.SkipReservedBlocks:
		s.ReservedBlockPolicy = v1alpha1.PublishRemainder
	default:
		s.Reserved = nil
	}
}
