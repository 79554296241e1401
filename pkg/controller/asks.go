package controller

import (
	"cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Annotations of pods and namespaces that name the pool of Cilium's they want
// (pkg/annotation/k8s.go, IPAMPoolKey, IPAMIPv4PoolKey and IPAMIPv6PoolKey,
// v1.20.1).
const (
	poolAnnotation   = "ipam.cilium.io/ip-pool"
	v4PoolAnnotation = "ipam.cilium.io/ipv4-pool"
	v6PoolAnnotation = "ipam.cilium.io/ipv6-pool"
)

// askedPools are the pools that annotations name, by family, the family's own
// first (pkg/ipam/metadata/manager.go, determinePoolByAnnotations, v1.20.1). Nil:
// they name none.
func askedPools(annotations map[string]string) *[2]string {
	asked := [2]string{
		ipalloc.IPv4: cmp.Or(annotations[v4PoolAnnotation], annotations[poolAnnotation]),
		ipalloc.IPv6: cmp.Or(annotations[v6PoolAnnotation], annotations[poolAnnotation]),
	}
	if asked == [2]string{} {
		return nil
	}
	return &asked
}

// KeepAsked are those of annotations that ask for a pool of Cilium's.
func KeepAsked(annotations map[string]string) map[string]string {
	var kept map[string]string
	for _, key := range []string{poolAnnotation, v4PoolAnnotation, v6PoolAnnotation} {
		if pool, asks := annotations[key]; asks {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = pool
		}
	}
	return kept
}

func sameAsked(a, b *[2]string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// Asked are the pools of Cilium's that pods ask for, by "namespace/name" and
// family. Those that ask for none are left out.
type Asked map[string]*[2]string

// Add takes in a pod by its annotations and those of its namespace.
func (a Asked) Add(name string, annotations, ofNamespace map[string]string) {
	a.add(name, askedPools(annotations), askedPools(ofNamespace))
}

func (a Asked) add(name string, pod, namespace *[2]string) {
	switch {
	case pod == nil && namespace == nil:
	case pod == nil || namespace == nil:
		a[name] = cmp.Or(pod, namespace)
	default:
		a[name] = &[2]string{cmp.Or(pod[0], namespace[0]), cmp.Or(pod[1], namespace[1])}
	}
}

// pool is the one that a pod asks for; "": the default one.
func (a Asked) pool(name string, f ipalloc.Family) string {
	if wants := a[name]; wants != nil && wants[f] != crd.DefaultCiliumPool {
		return wants[f]
	}
	return ""
}
