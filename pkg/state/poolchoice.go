package state

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// Annotations of pods and namespaces that request a Cilium pool, or that make the pod
// accept only a pool that they name or that selects it (pkg/annotation/k8s.go, IPAMPoolKey,
// IPAMIPv4PoolKey, IPAMIPv6PoolKey and IPAMRequirePoolMatch, v1.20.1).
const (
	poolAnnotation    = "ipam.cilium.io/ip-pool"
	v4PoolAnnotation  = "ipam.cilium.io/ipv4-pool"
	v6PoolAnnotation  = "ipam.cilium.io/ipv6-pool"
	RequireAnnotation = "ipam.cilium.io/require-pool-match"
)

// AddressAnnotation names the address that a pod wants its owner to keep, of each family at most one, separated by a
// comma.
const AddressAnnotation = "cilium-pool.io/address"

// noPool stands for the pool of a pod that agents assign no address to. No pool name contains a
// slash.
const noPool = "/"

// PoolRequest is a pod's or a namespace's request for Cilium pools.
type PoolRequest struct {
	// pools are the pools that annotations name, by family; "": none.
	pools [2]string
	// strict: it accepts only a pool that it names or that selects it.
	strict bool
	// labels are encoded, so that requests can be compared.
	labels string
	// addresses are the value of AddressAnnotation.
	addresses string
}

// PoolRequestOf reads a PoolRequest from the annotations and labels of a pod or a namespace. The
// family's own annotation takes precedence (pkg/ipam/metadata/manager.go, determinePoolByAnnotations,
// v1.20.1).
func PoolRequestOf(meta *metav1.ObjectMeta) PoolRequest {
	annotation := meta.Annotations[poolAnnotation]
	return PoolRequest{
		pools: [2]string{
			ipalloc.IPv4: cmp.Or(meta.Annotations[v4PoolAnnotation], annotation),
			ipalloc.IPv6: cmp.Or(meta.Annotations[v6PoolAnnotation], annotation),
		},
		strict: meta.Annotations[RequireAnnotation] == "true", labels: labels.Set(meta.Labels).String(),
		addresses: meta.Annotations[AddressAnnotation],
	}
}

// wanted reads the addresses that a pod wants, by family, or says why it cannot.
func (w PoolRequest) wanted() (addrs [2]netip.Addr, problem string) {
	if w.addresses == "" {
		return addrs, ""
	}
	for text := range strings.SplitSeq(w.addresses, ",") {
		addr, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil || addr.Zone() != "" || addr.Is4In6() {
			return [2]netip.Addr{}, fmt.Sprintf("%q is no address", text)
		}
		f := ipalloc.FamilyOf(addr)
		if addrs[f].IsValid() {
			return [2]netip.Addr{}, fmt.Sprintf("%s and %s are two %s addresses", addrs[f], addr, f)
		}
		addrs[f] = addr
	}
	return addrs, ""
}

// labelSet decodes labels.
func (w PoolRequest) labelSet() labels.Set { return maps.Collect(w.eachLabel()) }

// eachLabel decodes labels. Neither keys nor values contain a comma or an equals sign.
func (w PoolRequest) eachLabel() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for pair := range strings.SplitSeq(w.labels, ",") {
			if key, value, ok := strings.Cut(pair, "="); ok && !yield(key, value) {
				return
			}
		}
	}
}

func (w PoolRequest) label(key string) (value string, ok bool) {
	for k, value := range w.eachLabel() {
		if k == key {
			return value, true
		}
	}
	return "", false
}

// KeepPoolRequests returns the annotations that request a Cilium pool.
func KeepPoolRequests(annotations map[string]string) map[string]string {
	var requests map[string]string
	for _, key := range []string{poolAnnotation, v4PoolAnnotation, v6PoolAnnotation, RequireAnnotation, AddressAnnotation} {
		if value, ok := annotations[key]; ok {
			if requests == nil {
				requests = map[string]string{}
			}
			requests[key] = value
		}
	}
	return requests
}

// Origin is what chooses the Cilium pool of a pod.
type Origin int

// Origins, in the order in which agents look for them (pkg/ipam/metadata/manager.go, GetIPPoolForPod,
// v1.20.1), but for originDefault.
const (
	// originDefault: nothing does, so the pod gets an address of its node's default pool.
	originDefault Origin = iota
	// podAnnotation, namespaceAnnotation: an annotation names the pool.
	podAnnotation
	namespaceAnnotation
	// podSelector: CiliumPodIPPools select the pod. Agents refuse a pod that several select.
	podSelector
	// podRequirement, namespaceRequirement: an annotation requires such a pool, and there is none.
	podRequirement
	namespaceRequirement
)

// PoolChoice is the Cilium pool that a pod is for, of one family. The zero value is the default pool.
type PoolChoice struct {
	// Pool is the Cilium pool; "": the default one, noPool: agents give the pod no address.
	Pool string
	By   Origin
	// Candidates are the CiliumPodIPPools of the family that select the pod, sorted.
	Candidates []string
}

// choosePools returns the choices for a pod, namespace/name, by its own request, its namespace's, and the
// CiliumPodIPPools that select pods.
func choosePools(name string, pod, namespace PoolRequest, picking *Picking) (choices [2]PoolChoice) {
	candidates := candidatesFor(name, pod, namespace, picking)
	for _, f := range ipalloc.Families() {
		pool, origin := poolOrigin(f, pod, namespace, candidates[f])
		if pool == crd.DefaultCiliumPool {
			pool = ""
		}
		choices[f] = PoolChoice{pool, origin, candidates[f]}
	}
	return choices
}

// poolOrigin returns the pool of a pod's address, and what chooses it.
func poolOrigin(f ipalloc.Family, pod, namespace PoolRequest, candidates []string) (string, Origin) {
	switch {
	case pod.pools[f] != "":
		return pod.pools[f], podAnnotation
	case namespace.pools[f] != "":
		return namespace.pools[f], namespaceAnnotation
	case len(candidates) > 1:
		return noPool, podSelector
	case len(candidates) == 1:
		return candidates[0], podSelector
	case pod.strict:
		return noPool, podRequirement
	case namespace.strict:
		return noPool, namespaceRequirement
	}
	return "", originDefault
}

// candidatesFor returns the CiliumPodIPPools that select a pod, by family, sorted.
func candidatesFor(name string, pod, namespace PoolRequest, picking *Picking) (candidates [2][]string) {
	if picking == nil {
		return candidates
	}
	podNamespace, podName, _ := strings.Cut(name, "/")
	pools := slices.Clone(picking.byOwner[name])
	for key := range picking.keys {
		if value, labelled := pod.label(key); labelled {
			pools = append(pools, picking.byOwner[crd.OwnerByLabel(podNamespace, key, value)]...)
		}
	}
	if len(picking.others) > 0 {
		podLabels := ciliumpool.PodLabels(podNamespace, podName, pod.labelSet())
		namespaceLabels := namespace.labelSet()
		for _, pool := range picking.others {
			if pool.Selector.Picks(podLabels, namespaceLabels) {
				pools = append(pools, pool)
			}
		}
	}
	for _, f := range ipalloc.Families() {
		for _, pool := range pools {
			if pool.MaskSize[f] != 0 {
				candidates[f] = append(candidates[f], pool.Name)
			}
		}
		slices.Sort(candidates[f])
	}
	return candidates
}

// ChoosePools returns the choices for a pod in a namespace, beside the CiliumPodIPPools that select pods.
func ChoosePools(pod, namespace *metav1.ObjectMeta, picking *Picking) [2]PoolChoice {
	return choosePools(pod.Namespace+"/"+pod.Name, PoolRequestOf(pod), PoolRequestOf(namespace), picking)
}

// Refusal says why a pod gets no address of a family; "": it does.
func (c PoolChoice) Refusal(pod string, f ipalloc.Family) string {
	if c.Pool != noPool {
		return ""
	}
	return c.describe(pod, f)
}

// describe says, for users, why a pod is for its Cilium pool.
func (c PoolChoice) describe(pod string, f ipalloc.Family) string {
	namespace, _, _ := strings.Cut(pod, "/")
	required := func(object string) string {
		return fmt.Sprintf("agents give no %s address to pod %s, as no CiliumPodIPPool selects it, and the annotation %s of %s requires one", f, pod, RequireAnnotation, object)
	}
	switch c.By {
	case podAnnotation:
		return "the annotation of pod " + pod + " asks for it"
	case namespaceAnnotation:
		return "the annotation of namespace " + namespace + " asks for it"
	case podSelector:
		if c.Pool == noPool {
			return fmt.Sprintf("agents give no %s address to pod %s, as several CiliumPodIPPools select it: %s", f, pod, suggest.Few(c.Candidates))
		}
		return "CiliumPodIPPool " + c.Pool + " selects pod " + pod
	case podRequirement:
		return required("pod " + pod)
	case namespaceRequirement:
		return required("namespace " + namespace)
	}
	return "pod " + pod + " names no pool, and Cilium's setting " + ciliumconfig.DefaultPoolSetting + " makes this one the node's default"
}

// PoolChoices are the choices for pods, by namespace/name and family. Pods with originDefault are left out.
type PoolChoices map[string]*[2]PoolChoice

// Of returns the choice for a pod.
func (c PoolChoices) Of(pod string, f ipalloc.Family) PoolChoice {
	if choices := c[pod]; choices != nil {
		return choices[f]
	}
	return PoolChoice{}
}

// PoolChoices returns the choices for the pods on a node.
func (p *Pods) PoolChoices(node string, picking *Picking) PoolChoices {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := PoolChoices{}
	for i := range p.byNode[node] {
		pod := &p.byNode[node][i]
		choices := p.choosePools(pod, picking)
		if choices[ipalloc.IPv4].By != originDefault || choices[ipalloc.IPv6].By != originDefault {
			out[pod.Name] = &choices
		}
	}
	return out
}

// choosePools returns the choices for a bound pod. The caller holds the lock.
func (p *Pods) choosePools(pod *BoundPod, picking *Picking) [2]PoolChoice {
	namespace, _, _ := strings.Cut(pod.Name, "/")
	return choosePools(pod.Name, pod.request.Value(), p.namespaces[namespace], picking)
}

// PoolForNewPod returns the Cilium pool, "" being the default one, that agents will give a new pod an address
// of. offered is false if they give it none, or Nodes offer none of the pool.
func (c *Cluster) PoolForNewPod(pod *metav1.ObjectMeta, f ipalloc.Family) (pool string, offered bool) {
	if !c.Defaults.CiliumPools {
		return "", true
	}
	c.Pods.mu.RLock()
	namespace := c.Pods.namespaces[pod.Namespace]
	c.Pods.mu.RUnlock()
	choices := choosePools(pod.Namespace+"/"+pod.Name, PoolRequestOf(pod), namespace, c.CiliumPools.Picking())
	pool = choices[f].Pool
	return pool, pool != noPool && MayOffer(pool)
}
