package state

import (
	"maps"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// OfferResource is the extended resource of a Cilium pool, "" being the default one, that Nodes offer
// and pods request: cilium-pool.io/ipv4, or blue.cilium-pool.io/ipv4.
func OfferResource(f ipalloc.Family, ciliumPool string) corev1.ResourceName {
	name := v1alpha1.IPv4Resource
	if f == ipalloc.IPv6 {
		name = v1alpha1.IPv6Resource
	}
	if ciliumPool != "" {
		name = ciliumPool + "." + name
	}
	return corev1.ResourceName(name)
}

// MayOffer reports whether Nodes can offer addresses of a Cilium pool: not of a single pod's, as its
// address goes where the pod goes, and not if its name makes no valid name of a resource
// (Kubernetes v1.36.3, pkg/apis/core/helper/helpers.go, IsExtendedResourceName).
func MayOffer(ciliumPool string) bool {
	name := string(OfferResource(ipalloc.IPv4, ciliumPool))
	return crd.OwnerOfPool(ciliumPool) == "" && !strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}

// OfferedPool returns the family and the Cilium pool of an extended resource; ok is false for
// resources that OfferResource does not return.
func OfferedPool(name corev1.ResourceName) (f ipalloc.Family, ciliumPool string, ok bool) {
	for _, f := range ipalloc.Families() {
		pool, cut := strings.CutSuffix(string(name), string(OfferResource(f, "")))
		if cut && (pool == "" || strings.HasSuffix(pool, ".")) {
			return f, strings.TrimSuffix(pool, "."), true
		}
	}
	return 0, "", false
}

// KeepResources reduces resources of a Node to the needs of decisions: the number of pods that the
// kubelet admits, and the numbers of addresses that the Node offers.
func KeepResources(list corev1.ResourceList) corev1.ResourceList {
	resources := maps.Clone(list)
	maps.DeleteFunc(resources, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, _, offered := OfferedPool(name)
		return name != corev1.ResourcePods && !offered
	})
	return resources
}

// AddressRequests returns the numbers of addresses, by family, that a pod requests of the default
// pool, and of other Cilium pools.
func AddressRequests(spec *corev1.PodSpec) (requests [2]uint16, ofPools map[string][2]uint16) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				f, pool, ok := OfferedPool(name)
				if !ok {
					continue
				}
				if pool == "" {
					requests[f] = requestOf(spec, name)
					continue
				}
				if ofPools == nil {
					ofPools = map[string][2]uint16{}
				}
				ofPool := ofPools[pool]
				ofPool[f] = requestOf(spec, name)
				ofPools[pool] = ofPool
			}
		}
	}
	return requests, ofPools
}

// requestOf returns a pod's request of a resource as the scheduler counts: the requests of its
// containers and sidecars together, or of one init container together with the sidecars before it,
// whichever is more.
func requestOf(spec *corev1.PodSpec, resource corev1.ResourceName) uint16 {
	valueOf := func(c *corev1.Container) int64 {
		quantity := c.Resources.Requests[resource]
		return quantity.Value()
	}
	var together, sidecars, most int64
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars += valueOf(c)
			most = max(most, sidecars)
			continue
		}
		most = max(most, sidecars+valueOf(c))
	}
	for i := range spec.Containers {
		together += valueOf(&spec.Containers[i])
	}
	return uint16(min(max(together+sidecars, most), math.MaxUint16))
}
