package world

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// stays has the rules of pods that keep their addresses by their names.
type stays struct {
	*World
	// of are the pods, as namespace/name, that an address was ever pinned to; made counts the pins of
	// each pod.
	of   map[netip.Addr]map[string]bool
	made map[ownerFamily]int
	last map[ownerFamily]lastAddress
}

type ownerFamily struct {
	pod    string
	family ipalloc.Family
}

// lastAddress is that of the last pod of a name, its pin, and how many pins the name had ever had.
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

func podOf(pin *v1alpha1.PodIPPin) string { return pin.Spec.PodNamespace + "/" + pin.Spec.PodName }

// pinned records a new pin.
func (s *stays) pinned(pin *v1alpha1.PodIPPin) {
	if pin.Spec.PodName == "" {
		return
	}
	addr, pod := netip.MustParsePrefix(pin.Spec.CIDR).Addr(), podOf(pin)
	if s.of[addr] == nil {
		s.of[addr] = map[string]bool{}
	}
	s.of[addr][pod] = true
	s.made[ownerFamily{pod, ipalloc.FamilyOf(addr)}]++
}

// allocated checks that a pod has only an address that was pinned to it, and that of the last pod of its name as
// long as nothing but one pin of it has been.
func (s *stays) allocated(e *endpoint) {
	pod := e.owner()
	for _, addr := range e.addrs() {
		key := ownerFamily{pod, ipalloc.FamilyOf(addr)}
		if crd.OwnerOfPool(e.pools[key.family]) != pod {
			continue
		}
		if !s.of[addr][pod] {
			s.violate(1, "pod %s has %s of its own Cilium pool, which was never pinned to it", pod, addr)
		}
		last, pin := s.last[key], s.pinOf(addr)
		if kept := s.pinOf(last.addr); kept != nil && kept.UID == last.pin && s.made[key] == last.made && addr != last.addr {
			s.violate(1, "pod %s has %s, and the last one had %s, which is kept for it", pod, addr, last.addr)
		}
		if delete(s.last, key); pin != nil && podOf(pin) == pod {
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

// checkRest checks at rest that no pod has two pins that operators made, and that each pod on a node that the pool
// serves has one, if an address is free.
func (s *stays) checkRest(when string) {
	if s.cfg.stays() == 0 || !s.whole() {
		return
	}
	made, has := map[ownerFamily]int{}, map[ownerFamily]bool{}
	for _, pin := range list[v1alpha1.PodIPPin](s.api, KindPin) {
		key := ownerFamily{podOf(pin), ipalloc.FamilyOf(netip.MustParsePrefix(pin.Spec.CIDR).Addr())}
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
			key := ownerFamily{keyOf(pod), f}
			if !s.workload.stays(pod.Name) {
				continue
			}
			if made[key] > 1 {
				s.violate(9, "%s: operators keep %d %s addresses for pod %s", when, made[key], f, key.pod)
			}
			if !has[key] && s.keeps(pool, pod) && !s.keepsHalf(pool, pod.Namespace, f) && s.space.freeOf(pool, f == ipalloc.IPv4) > 0 {
				s.violate(9, "%s: no %s address is kept for pod %s", when, f, key.pod)
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
