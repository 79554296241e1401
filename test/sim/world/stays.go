package world

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// stays has the rules of pods whose owners keep their addresses.
type stays struct {
	*World
	// of are the owners that an address was ever pinned to; made counts the pins of each.
	of   map[netip.Addr]map[string]bool
	made map[ownerFamily]int
	last map[ownerFamily]lastAddress
}

type ownerFamily struct {
	owner  string
	family ipalloc.Family
}

// lastAddress is that of the last pod of an owner, its pin, and how many pins the owner had ever had.
type lastAddress struct {
	addr netip.Addr
	pin  types.UID
	made int
}

func newStays(w *World) *stays {
	return &stays{World: w, of: map[netip.Addr]map[string]bool{}, made: map[ownerFamily]int{}, last: map[ownerFamily]lastAddress{}}
}

func (c *Config) stays() int {
	if c.Asking == nil {
		return 0
	}
	return c.Asking.Stays
}

// keeps is the pool that keeps addresses.
func (a *Asking) keeps() *v1alpha1.PodIPPool {
	for _, pool := range a.Served {
		if pool.Spec.PodAddresses != nil {
			return pool
		}
	}
	return nil
}

// OwnerLabel is the label that owns addresses, in worlds where names do not.
const OwnerLabel = "vm.kubevirt.io/name"

// podOwner returns the owner of a pod.
func podOwner(pod client.Object) string {
	if value, labelled := pod.GetLabels()[OwnerLabel]; labelled {
		return crd.OwnerByLabel(pod.GetNamespace(), OwnerLabel, value)
	}
	return crd.OwnerByName(pod.GetNamespace(), pod.GetName())
}

// pinOwner returns the owner that a pin is for; "": it is for a Node.
func pinOwner(pin *v1alpha1.PodIPPin) string {
	read, _ := crd.PinFrom(pin)
	return read.Owner
}

// pinned records a new pin.
func (s *stays) pinned(pin *v1alpha1.PodIPPin) {
	addr := netip.MustParsePrefix(pin.Spec.CIDR).Addr()
	owner := pinOwner(pin)
	if owner == "" {
		return
	}
	if s.of[addr] == nil {
		s.of[addr] = map[string]bool{}
	}
	s.of[addr][owner] = true
	s.made[ownerFamily{owner, ipalloc.FamilyOf(addr)}]++
}

// allocated checks that a pod has only an address that was pinned to its owner, and that of the owner's last pod as long
// as nothing but one pin of it has been.
func (s *stays) allocated(e *endpoint) {
	owner := podOwner(e.pod)
	for _, addr := range e.addrs() {
		key := ownerFamily{owner, ipalloc.FamilyOf(addr)}
		if crd.OwnerOfPool(e.pools[key.family]) != owner {
			continue
		}
		if !s.of[addr][owner] {
			s.violate(1, "pod %s has %s of its owner's Cilium pool, which was never pinned to %s", e.owner(), addr, owner)
		}
		last, pin := s.last[key], s.pinOf(addr)
		if kept := s.pinOf(last.addr); kept != nil && kept.UID == last.pin && s.made[key] == last.made && addr != last.addr {
			s.violate(1, "pod %s has %s, and the last one had %s, which is kept for %s", e.owner(), addr, last.addr, owner)
		}
		if delete(s.last, key); pin != nil && pinOwner(pin) == owner {
			s.last[key] = lastAddress{addr, pin.UID, s.made[key]}
		}
	}
}

// pinOf returns the pin of an address, or nil.
func (s *stays) pinOf(addr netip.Addr) *v1alpha1.PodIPPin {
	if !addr.IsValid() {
		return nil
	}
	pin, _ := s.api.Get(KindPin, crd.BlockName(netip.PrefixFrom(addr, addr.BitLen()))).(*v1alpha1.PodIPPin)
	return pin
}

// checkRest checks at rest that no owner has two pins that operators made, and that the owner of each pod on a node that
// the pool serves has one, if an address is free.
func (s *stays) checkRest(when string) {
	if s.cfg.stays() == 0 || !s.whole() {
		return
	}
	made, has := map[ownerFamily]int{}, map[ownerFamily]bool{}
	for _, pin := range list[v1alpha1.PodIPPin](s.api, KindPin) {
		key := ownerFamily{pinOwner(pin), ipalloc.FamilyOf(netip.MustParsePrefix(pin.Spec.CIDR).Addr())}
		if has[key] = true; pin.Labels[ciliumpool.ManagedByLabel] == ciliumpool.ManagedBy {
			made[key]++
		}
	}
	pool, _ := s.api.Get(KindPool, s.cfg.Asking.keeps().Name).(*v1alpha1.PodIPPool)
	if pool == nil || pool.Spec.PodAddresses == nil {
		return
	}
	for _, f := range ipalloc.Families() {
		for _, pod := range list[corev1.Pod](s.api, KindPod) {
			key := ownerFamily{podOwner(pod), f}
			if !s.workload.stays(pod.Name) {
				continue
			}
			if made[key] > 1 {
				s.violate(9, "%s: operators keep %d %s addresses for %s", when, made[key], f, key.owner)
			}
			if !has[key] && s.keeps(pool, pod) && !s.keepsHalf(pool, pod.Namespace, f) && s.space.freeOf(pool, f == ipalloc.IPv4) > 0 {
				s.violate(9, "%s: no %s address is kept for %s", when, f, key.owner)
			}
		}
	}
}

// keeps reports whether a pool keeps addresses for a pod, if it has any.
func (s *stays) keeps(pool *v1alpha1.PodIPPool, pod *corev1.Pod) bool {
	node := pod.Spec.NodeName
	serves := pool.DeletionTimestamp == nil && !isPaused(pool) && s.api.Get(KindNode, node) != nil && s.space.selects(pool, node)
	return serves && !finished(pod) && !s.asksElsewhere(pod)
}

// keepsHalf reports whether pods of a namespace keep half of a pool's addresses, which is all that one of several may.
func (s *stays) keepsHalf(pool *v1alpha1.PodIPPool, namespace string, f ipalloc.Family) bool {
	all, kept := 0, 0
	cidrs, bits := ranges(pool, f == ipalloc.IPv4)
	for _, c := range cidrs {
		rng := netip.MustParsePrefix(c.CIDR)
		all += 1 << (bits - rng.Bits())
		for _, pin := range list[v1alpha1.PodIPPin](s.api, KindPin) {
			if pin.Spec.PodNamespace == namespace && rng.Overlaps(netip.MustParsePrefix(pin.Spec.CIDR)) {
				kept++
			}
		}
	}
	return 2*kept >= all
}

// asksElsewhere reports whether the namespace of a pod, or a CiliumPodIPPool, gives it another pool.
func (s *stays) asksElsewhere(pod *corev1.Pod) bool {
	namespace := s.api.Get(KindNamespace, pod.Namespace)
	for _, key := range []string{asksPool, asksV4Pool, asksV6Pool} {
		if namespace.GetAnnotations()[key] != "" {
			return true
		}
	}
	return len(s.workload.pickedFor(pod, namespace, ipalloc.IPv4))+len(s.workload.pickedFor(pod, namespace, ipalloc.IPv6)) > 0
}
