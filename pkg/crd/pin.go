package crd

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// Pin is a PodIPPin.
type Pin struct {
	CIDR netip.Prefix
	// Node is the node that it keeps the block for, or Pod the pods, as namespace/name.
	Node, Pod string
}

// For is who it keeps the block for: Node or Pod. No name of a node contains a slash.
func (p Pin) For() string { return cmp.Or(p.Pod, p.Node) }

// The names of the Cilium pools of single pods have this prefix and this suffix. PodIPPools cannot use the
// suffix. Agents list their pools by name, and the first CIDR of the list is the primary one of the node: a change
// of it regenerates all endpoints of the node (pkg/k8s/node.go, ParseCiliumNode, v1.20.2). So the prefix sorts after
// the pools that agents have their own addresses from.
const (
	podPoolPrefix = "zz."
	podPoolSuffix = ".pods.cilium-pool.io"
)

// oldPodPoolSuffix ends the names that earlier operators chose. They have no prefix.
const oldPodPoolSuffix = ".pod.cilium-pool.io"

// CiliumPoolOfPod returns the Cilium pool for the pinned addresses of a pod, named namespace/name.
func CiliumPoolOfPod(pod string) string {
	namespace, name, _ := strings.Cut(pod, "/")
	return podPoolPrefix + name + "." + namespace + podPoolSuffix
}

// OldCiliumPoolOfPod returns the name that earlier operators chose for CiliumPoolOfPod.
func OldCiliumPoolOfPod(pod string) string {
	namespace, name, _ := strings.Cut(pod, "/")
	return name + "." + namespace + oldPodPoolSuffix
}

// PodOfPool returns the pod that a Cilium pool of either name is for, as namespace/name; "": it is for no
// single pod. The name of a namespace has no dot.
func PodOfPool(ciliumPool string) string {
	rest, ok := strings.CutSuffix(ciliumPool, oldPodPoolSuffix)
	if current, prefixed := strings.CutPrefix(ciliumPool, podPoolPrefix); !ok && prefixed {
		rest, ok = strings.CutSuffix(current, podPoolSuffix)
	}
	i := strings.LastIndexByte(rest, '.')
	if !ok || i < 1 || i == len(rest)-1 {
		return ""
	}
	return rest[i+1:] + "/" + rest[:i]
}

// PodAddresses are the pods that keep an address of a pool by their names.
type PodAddresses struct {
	pods, namespaces labels.Selector
	// ReleaseAfter is how long an address is kept while there is no pod, unless Never is set.
	ReleaseAfter time.Duration
	Never        bool
}

// Picks reports whether pods with these labels, in a namespace with these, keep an address of the pool.
func (p *Pool) Picks(pod, namespace labels.Set) bool {
	rule := p.PodAddresses
	return rule != nil && rule.pods.Matches(pod) && rule.namespaces.Matches(namespace)
}

// PicksNamespace reports whether pods in a namespace with these labels may keep an address of the pool.
func (a *PodAddresses) PicksNamespace(namespace labels.Set) bool {
	return a.namespaces.Matches(namespace)
}

// parsePodAddresses reads the pods that keep an address of a pool: none beside an error, as the pool can
// serve all others.
func parsePodAddresses(spec *v1alpha1.PodIPPoolSpec, d Defaults, path *field.Path) (*PodAddresses, field.ErrorList) {
	source := spec.PodAddresses
	if source == nil {
		return nil, nil
	}
	single := (spec.IPv4 == nil || spec.IPv4.BlockSize == 32) && (spec.IPv6 == nil || spec.IPv6.BlockSize == 128)
	if !single || !d.CiliumPools {
		return nil, field.ErrorList{field.Forbidden(path, "needs multi-pool mode, and blocks of single addresses (blockSize 32, 128 in ipv6). Until then no pod keeps an address")}
	}
	rule := &PodAddresses{ReleaseAfter: DefaultReleaseAfter, Never: source.ReleaseAfter == v1alpha1.Never}
	var problems field.ErrorList
	if source.ReleaseAfter != "" && !rule.Never {
		problems = setDuration(&rule.ReleaseAfter, &source.ReleaseAfter, maxReleaseAfter, path.Child("releaseAfter"))
	}
	pods, errs := parseSelector(source.PodSelector, path.Child("podSelector"))
	namespaces, namespaceErrs := parseSelector(source.NamespaceSelector, path.Child("namespaceSelector"))
	if errs = append(errs, namespaceErrs...); len(errs) > 0 {
		return nil, append(problems, errs...)
	}
	if pods.Empty() && namespaces.Empty() {
		return nil, append(problems, field.Required(path, "name pods by podSelector or namespaceSelector. Until then no further pod keeps an address"))
	}
	rule.pods = pods
	rule.namespaces = namespaces
	return rule, problems
}

// PinFrom reads a pin. The API server refuses a malformed one, except where it was stored before
// its rules.
func PinFrom(obj *v1alpha1.PodIPPin) (Pin, error) {
	path := field.NewPath("spec")
	cidr, bad := parseCIDR(obj.Spec.CIDR, path.Child("cidr"))
	if bad != nil {
		return Pin{}, bad
	}
	if BlockName(cidr) != obj.Name {
		return Pin{}, field.Invalid(field.NewPath("metadata", "name"), obj.Name, fmt.Sprintf("does not follow from spec.cidr: must be %s", BlockName(cidr)))
	}
	if obj.Spec.PodName != "" && obj.Spec.PodNamespace != "" && obj.Spec.NodeName == "" {
		return Pin{CIDR: cidr, Pod: obj.Spec.PodNamespace + "/" + obj.Spec.PodName}, nil
	}
	if obj.Spec.NodeName == "" {
		return Pin{}, field.Required(path.Child("nodeName"), "name the Node, or a pod by podName and podNamespace")
	}
	return Pin{CIDR: cidr, Node: obj.Spec.NodeName}, nil
}
