// Package webhook makes new pods request addresses on Kubernetes without MutatingAdmissionPolicy, and
// in multi-pool mode by the podSelectors that no policy can read. It keeps no pod out: it allows all
// that it is asked about, and the API server creates pods without it when no replica answers.
package webhook

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Path is the path that the API server sends pods to.
const Path = "/request-addresses"

// Requests adds a request of an address of each family to the first container of a pod. The webhook's
// matchConditions, in the chart, leave out pods that need none.
type Requests struct {
	Cluster  *state.Cluster
	Families []ipalloc.Family
}

// Handle implements admission.Handler.
func (r *Requests) Handle(_ context.Context, req admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if json.Unmarshal(req.Object.Raw, pod) != nil || len(pod.Spec.Containers) == 0 || !r.Cluster.Ledger.Ready() {
		return admission.Allowed("") // its request is unknown
	}
	pod.Namespace = req.Namespace
	one := corev1.ResourceList{}
	for _, f := range r.Families {
		if pool, offered := r.Cluster.PoolForNewPod(&pod.ObjectMeta, f); offered && !mentions(&pod.Spec, f) {
			one[state.OfferResource(f, pool)] = resource.MustParse("1")
		}
	}
	return admission.Patched("", patches(&pod.Spec.Containers[0].Resources, one)...)
}

// mentions reports whether a container requests or limits addresses of a family, of any Cilium pool.
func mentions(spec *corev1.PodSpec, f ipalloc.Family) bool {
	return slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool {
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for name := range list {
				if offered, _, ok := state.OfferedPool(name); ok && offered == f {
					return true
				}
			}
		}
		return false
	})
}

// patches adds resources to the first container. It touches no other field of the pod, which may
// be of a newer Kubernetes than this code.
func patches(current *corev1.ResourceRequirements, added corev1.ResourceList) (ops []webhook.JSONPatchOp) {
	const path = "/spec/containers/0/resources"
	add := func(path string, value any) {
		ops = append(ops, webhook.JSONPatchOp{Operation: "add", Path: path, Value: value})
	}
	if len(added) == 0 {
		return nil
	}
	if len(current.Requests)+len(current.Limits)+len(current.Claims) == 0 {
		add(path, corev1.ResourceRequirements{Requests: added, Limits: added})
		return ops
	}
	for list, known := range map[string]corev1.ResourceList{"/requests": current.Requests, "/limits": current.Limits} {
		if len(known) == 0 {
			add(path+list, added)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(added)) {
			add(path+list+"/"+strings.ReplaceAll(string(name), "/", "~1"), added[name])
		}
	}
	return ops
}
