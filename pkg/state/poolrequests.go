package state

import (
	"cmp"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Annotations of pods and namespaces that name the pool of Cilium's they want, or
// that they want none but one that they name or are picked for
// (pkg/annotation/k8s.go, IPAMPoolKey, IPAMIPv4PoolKey, IPAMIPv6PoolKey and
// IPAMRequirePoolMatch, v1.20.1).
const (
	poolAnnotation    = "ipam.cilium.io/ip-pool"
	v4PoolAnnotation  = "ipam.cilium.io/ipv4-pool"
	v6PoolAnnotation  = "ipam.cilium.io/ipv6-pool"
	requireAnnotation = "ipam.cilium.io/require-pool-match"
)

// noPool stands for the pool of a pod that agents give no address to. No pool has
// a slash in its name.
const noPool = "/"

// PoolRequest is what a pod or a namespace says of the pools of Cilium's it wants.
type PoolRequest struct {
	// pools are those that annotations name, by family; "": none.
	pools [2]string
	// strict: it wants no pool that it neither names nor is picked for.
	strict bool
	// labels are in one text, as those of many pods are alike.
	labels string
}

// PoolRequestOf reads it from the annotations and labels of a pod or a namespace.
func PoolRequestOf(meta *metav1.ObjectMeta) PoolRequest {
	return PoolRequest{pools: requestedPools(meta.Annotations), strict: meta.Annotations[requireAnnotation] == "true", labels: labels.Set(meta.Labels).String()}
}

// labelSet reads labels back: no key and no value has a comma or an equals sign.
func (w PoolRequest) labelSet() labels.Set {
	set := labels.Set{}
	for pair := range strings.SplitSeq(w.labels, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			set[key] = value
		}
	}
	return set
}

// requestedPools are the pools that annotations name, by family, the family's own
// first (pkg/ipam/metadata/manager.go, determinePoolByAnnotations, v1.20.1).
func requestedPools(annotations map[string]string) [2]string {
	return [2]string{
		ipalloc.IPv4: cmp.Or(annotations[v4PoolAnnotation], annotations[poolAnnotation]),
		ipalloc.IPv6: cmp.Or(annotations[v6PoolAnnotation], annotations[poolAnnotation]),
	}
}

// KeepPoolRequests are those of annotations that say which pool of Cilium's is wanted.
func KeepPoolRequests(annotations map[string]string) map[string]string {
	var kept map[string]string
	for _, key := range []string{poolAnnotation, v4PoolAnnotation, v6PoolAnnotation, requireAnnotation} {
		if value, asks := annotations[key]; asks {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

// requestHandle holds what a pod wants once for all pods that want the same.
type requestHandle = unique.Handle[PoolRequest]

// requestOf is what was kept; of modes in which nobody asks, nothing was.
func requestOf(k requestHandle) PoolRequest {
	if k == (requestHandle{}) {
		return PoolRequest{}
	}
	return k.Value()
}

// PoolRequests are the pools of Cilium's that pods ask for, by "namespace/name" and
// family. Those that ask for the default one are left out.
type PoolRequests map[string]*[2]string

// Add takes in a pod, its namespace, nil if that is unknown, and the
// CiliumPodIPPools that pick pods.
func (a PoolRequests) Add(pod *corev1.Pod, namespace *corev1.Namespace, picking []*ciliumpool.View) {
	var of PoolRequest
	if namespace != nil {
		of = PoolRequestOf(&namespace.ObjectMeta)
	}
	a.add(pod.Namespace+"/"+pod.Name, PoolRequestOf(&pod.ObjectMeta), of, picking)
}

func (a PoolRequests) add(name string, pod, namespace PoolRequest, picking []*ciliumpool.View) {
	picked := pickedFor(name, pod, namespace, picking)
	var asked [2]string
	for _, f := range ipalloc.Families() {
		asked[f] = poolFor(f, pod, namespace, picked[f])
	}
	if asked != [2]string{} {
		a[name] = &asked
	}
}

// pickedFor are the pools that pick a pod, by family.
func pickedFor(name string, pod, namespace PoolRequest, picking []*ciliumpool.View) (picked [2][]string) {
	if len(picking) == 0 {
		return picked
	}
	in, of, _ := strings.Cut(name, "/")
	own, space := ciliumpool.PodLabels(in, of, pod.labelSet()), namespace.labelSet()
	for _, pool := range picking {
		if !pool.Selector.Picks(own, space) {
			continue
		}
		for _, f := range ipalloc.Families() {
			if pool.MaskSize[f] != 0 {
				picked[f] = append(picked[f], pool.Name)
			}
		}
	}
	return picked
}

// poolFor is the pool that an agent gives a pod an address of, "" for the default
// one (pkg/ipam/metadata/manager.go, GetIPPoolForPod, v1.20.1): where more than
// one picks the pod it refuses.
func poolFor(f ipalloc.Family, pod, namespace PoolRequest, picked []string) string {
	pool := cmp.Or(pod.pools[f], namespace.pools[f])
	switch {
	case pool != "":
	case len(picked) > 1, len(picked) == 0 && (pod.strict || namespace.strict):
		return noPool
	case len(picked) == 1:
		pool = picked[0]
	}
	if pool == crd.DefaultCiliumPool {
		return ""
	}
	return pool
}

// Of is the one that a pod asks for; "": the default one.
func (a PoolRequests) Of(name string, f ipalloc.Family) string {
	if asked := a[name]; asked != nil {
		return asked[f]
	}
	return ""
}
