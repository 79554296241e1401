package world

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	slimmetav1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// Asking lists the pools that pods may request besides Cilium's pool default.
type Asking struct {
	// Served are PodIPPools that users create and delete. Of those with the same name, which
	// serve different Cilium pools, at most one exists at a time.
	Served []*v1alpha1.PodIPPool
	// Stays is the number of pods, on any node, that one of them keeps addresses for.
	Stays int
	// ByLabel: it keeps them for the values of OwnerLabel. Two of these pods share one.
	ByLabel bool
}

// staying begins the names of these pods.
const staying = "web-"

func (wl *workload) stays(slot string) bool { return strings.HasPrefix(slot, staying) }

// named returns a pod that stays, with its name and its owner's label.
func (wl *workload) named(slot string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: slot}}
	if wl.cfg.Asking.ByLabel {
		pod.GenerateName = "launcher-"
		pod.Labels = map[string]string{OwnerLabel: "db"}
		if slot == staying+"0" {
			pod.Labels[OwnerLabel] = "web"
		}
	}
	return pod
}

// Annotations that request a Cilium pool (pkg/annotation/k8s.go, v1.20.1), besides labels.
const (
	asksPool   = "ipam.cilium.io/ip-pool"
	asksV4Pool = "ipam.cilium.io/ipv4-pool"
	asksV6Pool = "ipam.cilium.io/ipv6-pool"
	asksStrict = "ipam.cilium.io/require-pool-match"
)

// asksLabel is the label that the selectors of CiliumPodIPPools use here.
const asksLabel = "wants"

// asks are the requests that pods and namespaces may have, in the notation of ask.
func (wl *workload) asks() []string {
	switch {
	case wl.cfg.Move != nil && len(wl.cfg.Move.Pools) > 0:
		return slices.Compact(slices.Sorted(maps.Values(wl.cfg.Move.Pools)))
	case wl.cfg.Asking == nil:
		return nil
	}
	out := []string{"strict"}
	for _, pool := range wl.ciliumPools() {
		out = append(out, "label-"+pool)
		if pool != crd.DefaultCiliumPool {
			out = append(out, pool, "v4-"+pool)
			if len(wl.cfg.Families) > 1 {
				out = append(out, "v6-"+pool)
			}
		}
	}
	return out
}

// ask makes a pod or a namespace request this alone.
func ask(obj client.Object, what string) {
	annotations, labels := maps.Clone(obj.GetAnnotations()), maps.Clone(obj.GetLabels())
	for _, key := range []string{asksPool, asksV4Pool, asksV6Pool, asksStrict} {
		delete(annotations, key)
	}
	delete(labels, asksLabel)
	put := func(to *map[string]string, key, value string) {
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = value
	}
	label, byLabel := strings.CutPrefix(what, "label-")
	v4, byV4 := strings.CutPrefix(what, "v4-")
	v6, byV6 := strings.CutPrefix(what, "v6-")
	switch {
	case what == "":
	case what == "stay":
		put(&labels, asksLabel, what)
		put(&annotations, asksStrict, "true")
	case what == "strict":
		put(&annotations, asksStrict, "true")
	case byLabel:
		put(&labels, asksLabel, label)
	case byV4: // goes before the other
		put(&annotations, asksPool, "unknown")
		put(&annotations, asksV4Pool, v4)
	case byV6:
		put(&annotations, asksV6Pool, v6)
	default:
		put(&annotations, asksPool, what)
	}
	obj.SetAnnotations(annotations)
	obj.SetLabels(labels)
}

// askedBy returns the pools from which a node's agent takes a pod's addresses, by family, for
// the families that the agent runs: in modes without pools it records the default one. It
// returns false if the agent refuses.
func (m *machine) askedBy(pod *corev1.Pod) (pools [2]string, ok bool) {
	for _, family := range m.families {
		f := familyOf(family)
		if m.whole == nil && m.nodeAgent == nil {
			pools[f] = crd.DefaultCiliumPool
		} else if pools[f], ok = m.w.workload.askedBy(pod, f); !ok {
			return pools, false
		}
	}
	return pools, true
}

// askedBy returns the pool from which an agent takes a pod's address of a family. It returns
// false if the agent refuses (pkg/ipam/metadata/manager.go, GetIPPoolForPod, v1.20.1).
func (wl *workload) askedBy(pod *corev1.Pod, f ipalloc.Family) (pool string, ok bool) {
	if wl.cfg.Asking == nil {
		return cmp.Or(pod.Annotations[asksPool], crd.DefaultCiliumPool), true
	}
	namespace := wl.api.Get(KindNamespace, pod.Namespace)
	ofFamily := [2]string{ipalloc.IPv4: asksV4Pool, ipalloc.IPv6: asksV6Pool}[f]
	for _, obj := range []client.Object{pod, namespace} {
		if pool := cmp.Or(obj.GetAnnotations()[ofFamily], obj.GetAnnotations()[asksPool]); pool != "" {
			return pool, true
		}
	}
	strict := pod.Annotations[asksStrict] == "true" || namespace.GetAnnotations()[asksStrict] == "true"
	switch picked := wl.pickedFor(pod, namespace, f); {
	case len(picked) == 1:
		return picked[0], true
	case len(picked) == 0 && !strict:
		return crd.DefaultCiliumPool, true
	}
	return "", false
}

// pickedFor returns the CiliumPodIPPools of a family with selectors that match a pod.
func (wl *workload) pickedFor(pod, namespace client.Object, f ipalloc.Family) []string {
	var out []string
	for _, name := range wl.api.Keys(KindCiliumPool) {
		s := wl.ciliumPool(name).Spec
		selects := s.PodSelector != nil || s.NamespaceSelector != nil
		if selects && hasFamily(&s, f) && matches(s.PodSelector, pod) && matches(s.NamespaceSelector, namespace) {
			out = append(out, name)
		}
	}
	return out
}

func hasFamily(s *ciliumv2alpha1.IPPoolSpec, f ipalloc.Family) bool {
	if f == ipalloc.IPv4 {
		return s.IPv4 != nil
	}
	return s.IPv6 != nil
}

// matches reports whether a selector with labels only (nil: all) matches an object.
func matches(s *slimmetav1.LabelSelector, obj client.Object) bool {
	if s != nil {
		for key, value := range s.MatchLabels {
			is := map[string]string{"io.kubernetes.pod.namespace": obj.GetNamespace(), "io.kubernetes.pod.name": obj.GetName()}
			if cmp.Or(is[key], obj.GetLabels()[key]) != value {
				return false
			}
		}
	}
	return true
}

// roomFor returns the number of free blocks in the pools that a pod requests, in the family that
// has fewer; none if its agent refuses.
func (wl *workload) roomFor(m *machine, pod *corev1.Pod) int {
	pools, ok := m.askedBy(pod)
	switch {
	case wl.cfg.Asking == nil || m.phase != serving:
		return m.roomToStart()
	case !ok:
		return 0
	}
	n := enoughFree
	for _, family := range m.families {
		f := familyOf(family)
		n = min(n, wl.space.freeBlocks(m.name, f == ipalloc.IPv4, pools[f]))
	}
	return n
}

// asking is the namespace of every other pod; its own request applies to them.
const asking = "asking"

func (wl *workload) namespaceOf(slot string) string {
	if wl.cfg.Asking != nil && !wl.stays(slot) && slices.Index(wl.slots, slot)%2 == 1 {
		return asking
	}
	return "default"
}

// waitsFor is an owner that waits for an address of a pool, as the agent records it.
type waitsFor struct {
	pool   string
	family ipalloc.Family
	owner  string
}

// patience is the time that an owner that does not ask again counts as waiting
// (pkg/ipam/multipool_manager.go, pendingAllocationTTL, v1.20.1).
const patience = 5 * time.Minute

func (m *machine) isTired(since time.Time) bool { return !m.w.clock.now.Before(since.Add(patience)) }

// tired reports whether a pod has waited too long.
func (m *machine) tired() bool {
	for _, since := range m.waits {
		if m.isTired(since) {
			return true
		}
	}
	return false
}

// forget drops some of the waiting owners.
func (m *machine) forget(which func(waitsFor, time.Time) bool) {
	maps.DeleteFunc(m.waits, func(f waitsFor, since time.Time) bool {
		if which(f, since) {
			m.whole.Forget(f.pool, f.family, f.owner)
			return true
		}
		return false
	})
}

// takeOf takes an address of a pool for an owner, or records that the owner waits for one. A
// pool without a CiliumPodIPPool has none (pkg/ipam/multipool.go, shouldSkipMasqForPool,
// v1.20.1).
func (m *machine) takeOf(pool string, family ipalloc.Family, owner string) (netip.Addr, error) {
	addr, err := netip.Addr{}, agent.ErrNotInPool
	if m.w.cfg.Asking == nil || m.w.ciliumPool(pool) != nil {
		addr, err = m.whole.Allocate(pool, family, owner)
	} else {
		m.whole.Wait(pool, family, owner)
	}
	if f := (waitsFor{pool, family, owner}); err != nil {
		m.waits[f] = m.w.clock.now
	} else {
		delete(m.waits, f)
	}
	return addr, err
}
