package state

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// OfferResource is the extended resource that Nodes offer and pods request.
func OfferResource(f ipalloc.Family) corev1.ResourceName {
	if f == ipalloc.IPv4 {
		return v1alpha1.IPv4Resource
	}
	return v1alpha1.IPv6Resource
}

// AddressRequests returns the numbers of addresses, by family, that a pod requests, as the
// scheduler counts: the requests of its containers and sidecars together, or of one init container
// together with the sidecars before it, whichever is more.
func AddressRequests(spec *corev1.PodSpec) (requests [2]uint16) {
	for _, f := range ipalloc.Families() {
		resource := OfferResource(f)
		of := func(c *corev1.Container) int64 {
			quantity := c.Resources.Requests[resource]
			return quantity.Value()
		}
		var together, sidecars, most int64
		for i := range spec.InitContainers {
			c := &spec.InitContainers[i]
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
				sidecars += of(c)
				most = max(most, sidecars)
				continue
			}
			most = max(most, sidecars+of(c))
		}
		for i := range spec.Containers {
			together += of(&spec.Containers[i])
		}
		requests[f] = uint16(min(max(together+sidecars, most), math.MaxUint16))
	}
	return requests
}
