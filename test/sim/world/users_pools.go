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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// poolUsers edit PodIPPools, CiliumPodIPPools and namespaces.
type poolUsers struct {
	*World
	ipv6Over bool // they are done with IPv6
}

// enableAskingEdits enables the users' edits of Cilium pools, in the form "how=whom".
func (u *poolUsers) enableAskingEdits() {
	if u.cfg.Asking == nil {
		return
	}
	for _, pool := range u.cfg.Asking.Served {
		if how := u.serving(pool); how != "" {
			u.canIf(PoolEdits, PoolEdit, people, how+"="+servedName(pool))
		}
	}
	for _, name := range u.ciliumPools() {
		for _, how := range ciliumPoolEdits() {
			if (how == "make") == (u.ciliumPool(name) == nil) {
				u.canIf(PoolEdits, CiliumPoolEdit, people, how+"="+name)
			}
		}
	}
	for _, what := range append(u.workload.asks(), "") {
		u.canIf(PoolEdits, NamespaceEdit, people, asking+"="+what)
	}
}

// servedNow returns the PodIPPools of Asking.Served that exist.
func (u *poolUsers) servedNow() []string {
	var out []string
	if u.cfg.Asking != nil {
		for _, pool := range u.cfg.Asking.Served {
			if u.api.Get(KindPool, pool.Name) != nil && !slices.Contains(out, pool.Name) {
				out = append(out, pool.Name)
			}
		}
	}
	return out
}

func servedName(pool *v1alpha1.PodIPPool) string {
	return pool.Name + "/" + crd.CiliumPoolObjectName(pool)
}

// serving returns the users' next edit of a PodIPPool: create it or delete it; "": neither.
func (u *poolUsers) serving(pool *v1alpha1.PodIPPool) string {
	switch obj, ok := u.api.Get(KindPool, pool.Name).(*v1alpha1.PodIPPool); {
	case !ok:
		return "serve"
	case obj.DeletionTimestamp == nil && crd.CiliumPoolObjectName(obj) == crd.CiliumPoolObjectName(pool):
		return "unserve"
	}
	return ""
}

// editServed creates or deletes a PodIPPool, by servedName.
func (u *poolUsers) editServed(how, name string) {
	i := slices.IndexFunc(u.cfg.Asking.Served, func(p *v1alpha1.PodIPPool) bool { return servedName(p) == name })
	pool := u.cfg.Asking.Served[i]
	if how == "serve" {
		u.must(u.api.Create(pool))
		return
	}
	u.mustNot(u.api.Delete(KindPool, pool.Name, nil, nil))
}

// makeOrDelete creates or deletes a whole pool, or edits a selector, if what asks for that.
func (u *poolUsers) makeOrDelete(what string) bool {
	how, name, serving := strings.Cut(what, "=")
	switch {
	case what == "other":
		u.otherPool()
	case how == "selector":
		u.editSelector(name)
	case serving:
		u.editServed(how, name)
	default:
		return false
	}
	return true
}

func (u *poolUsers) otherPool() {
	if u.cfg.Other == nil {
		return
	}
	switch obj := u.api.Get(KindPool, u.cfg.Other.Name); {
	case obj == nil:
		u.must(u.api.Create(u.cfg.Other))
	case obj.GetDeletionTimestamp() == nil:
		u.mustNot(u.api.Delete(KindPool, obj.GetName(), nil, nil))
	}
}

// ciliumPoolEdits are the users' edits of a CiliumPodIPPool: create one, delete it, remove or add
// the operator's label, give it ranges of another family, and let it select pods by their labels,
// by those of their namespace, all of them, or none.
func ciliumPoolEdits() []string {
	return []string{"make", "delete", "strip", "mark", "family", "pick-pods", "pick-namespaces", "pick-all", "pick-none"}
}

func (u *poolUsers) editCiliumPool(how, name string) {
	switch how {
	case "make":
		obj := ciliumpool.Empty(name)
		obj.Spec.IPv4 = &ciliumv2alpha1.IPv4PoolSpec{CIDRs: []ciliumv2alpha1.PoolCIDR{"10.200.0.0/16"}, MaskSize: 24}
		u.must(u.api.Create(obj))
		return
	case "delete":
		u.mustNot(u.api.Delete(KindCiliumPool, name, nil, nil))
		return
	}
	obj := u.ciliumPool(name).DeepCopy()
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
	u.must(u.api.Update(obj, false))
}

// editAsking edits a CiliumPodIPPool, or a namespace's request.
func (u *poolUsers) editAsking(a Action) {
	before, after, _ := strings.Cut(a.What, "=")
	if a.Verb == CiliumPoolEdit {
		u.editCiliumPool(before, after)
		return
	}
	namespace := u.api.Get(KindNamespace, before).(*corev1.Namespace).DeepCopy()
	ask(namespace, after)
	u.must(u.api.Update(namespace, false))
}

// listForeign lists a CIDR that no PodIPPool knows, as a user.
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
	*lists = slices.Insert(*lists, i, allocatedOf([]whole.Entry{{Pool: pool, CIDR: foreign}})[0])
}

func (u *poolUsers) editPool(what string) {
	if u.makeOrDelete(what) {
		return
	}
	stored, ok := u.api.Get(KindPool, u.cfg.Pools[0].Name).(*v1alpha1.PodIPPool)
	if !ok {
		return
	}
	pool := stored.DeepCopy()
	cidrs := &pool.Spec.IPv4.CIDRs
	switch what {
	case "add":
		*cidrs = u.withSpare(*cidrs)
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
		if pool.Spec.Expand.MinFreeAddresses != nil && *pool.Spec.Expand.MinFreeAddresses == 1 {
			n = 3
		}
		pool.Spec.Expand.MinFreeAddresses = &n
	case "reserve":
		reserve(pool)
	case "pause":
		pool.Spec.Paused = new(!isPaused(pool))
	case "maintenance":
		u.cfg.Maintenance.setMaintenance(pool)
	case "family":
		u.switchFamily(pool)
	}
	u.must(u.api.Update(pool, false))
}

// withSpare adds the first spare range that is not there yet.
func (u *poolUsers) withSpare(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
	for _, spare := range u.cfg.Spare {
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

func (u *poolUsers) makeNamespaces() {
	for _, name := range []string{"default", asking} {
		u.must(u.api.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
}

// switchFamily removes IPv6 from a pool in the way that the API server allows: its ranges
// drain, or serve again, and can be removed once the pool's status counts no block of them.
// Then they return.
func (u *poolUsers) switchFamily(pool *v1alpha1.PodIPPool) {
	if pool.Spec.IPv6 == nil || u.gains() {
		pool.Spec.IPv6 = u.cfg.Pools[0].Spec.IPv6.DeepCopy()
		return
	}
	draining := !slices.ContainsFunc(pool.Spec.IPv6.CIDRs, allocates)
	if s := pool.Status.IPv6; draining && s != nil && s.Blocks.InService+s.Blocks.Draining+s.Blocks.CoolingDown == 0 {
		pool.Spec.IPv6 = nil
		return
	}
	policy := v1alpha1.AllocationDrain
	if draining && u.pick("family", u.api.version, 4) == 0 {
		policy = v1alpha1.AllocationAllocate
	}
	for i := range pool.Spec.IPv6.CIDRs {
		pool.Spec.IPv6.CIDRs[i].AllocationPolicy = policy
	}
}

// openAll lets blocks of all pools drain at any time, and reports whether any pool never
// allowed it.
func (u *poolUsers) openAll() bool {
	any := false
	for _, pool := range u.pools() {
		if u.cfg.Maintenance == nil || !u.cfg.Maintenance.shut(pool) {
			continue
		}
		any = true
		pool = pool.DeepCopy()
		pool.Spec.Maintenance = v1alpha1.Maintenance{Policy: v1alpha1.MaintenanceUnrestricted}
		u.must(u.api.Update(pool, false))
	}
	return any
}

// enableSelectors enables making the selectors of pools invalid, and valid again.
func (u *poolUsers) enableSelectors() {
	for _, pool := range u.cfg.Pools {
		if pool.Spec.UnselectedNodes.Policy == v1alpha1.UnselectedNodesDrain {
			u.canIf(PoolEdits, PoolEdit, people, "selector="+pool.Name)
		}
	}
}

// editSelector makes a valid selector invalid, in a way that no rule of the CRD has rejected,
// and an invalid one valid.
func (u *poolUsers) editSelector(name string) {
	pool := u.api.Get(KindPool, name).(*v1alpha1.PodIPPool).DeepCopy()
	if readable(pool) {
		pool.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: ZoneLabel, Operator: "Is", Values: []string{name}}}
	} else {
		pool.Spec.NodeSelector.MatchExpressions = nil
	}
	u.must(u.api.Update(pool, false))
}

// repairSelectors makes all selectors valid.
func (u *poolUsers) repairSelectors() {
	for _, name := range u.api.Keys(KindPool) {
		if !readable(u.api.Get(KindPool, name).(*v1alpha1.PodIPPool)) {
			u.editSelector(name)
		}
	}
}
