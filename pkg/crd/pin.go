package crd

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// Pin is a PodIPPin.
type Pin struct {
	CIDR netip.Prefix
	// Node is the node that it keeps the block for, or Owner the owner of the address: see OwnerByName.
	Node, Owner string
}

// For is who it keeps the block for: Node or Owner. IsOwner tells them apart.
func (p Pin) For() string { return cmp.Or(p.Owner, p.Node) }

// PodAddresses are the pods whose owners keep an address of a pool.
type PodAddresses struct {
	pods, namespaces labels.Selector
	// OwnerLabel is the key of the label whose value owns an address; "": the name of a pod does.
	OwnerLabel string
	// ReleaseAfter is how long an address is kept while its owner has no pod, unless Never is set.
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
		return nil, field.ErrorList{field.Forbidden(path, "needs multi-pool or delegated-plugin mode, and blocks of single addresses (blockSize 32, 128 in ipv6). Until then no pod keeps an address")}
	}
	rule := &PodAddresses{OwnerLabel: source.OwnerLabel, ReleaseAfter: DefaultReleaseAfter, Never: source.ReleaseAfter == v1alpha1.Never}
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
	owner := ownerOf(&obj.Spec)
	if (owner == "") == (obj.Spec.NodeName == "") {
		return Pin{}, field.Required(path.Child("nodeName"), "name the Node, or podNamespace and the pods by podName or podLabel")
	}
	return Pin{CIDR: cidr, Node: obj.Spec.NodeName, Owner: owner}, nil
}

// PinSpec returns the spec of a pin that keeps an address for an owner.
func PinSpec(cidr netip.Prefix, owner string) v1alpha1.PodIPPinSpec {
	namespace, key, value := SplitOwner(owner)
	spec := v1alpha1.PodIPPinSpec{CIDR: cidr.String(), PodNamespace: namespace}
	if key == "" {
		spec.PodName = value
	} else {
		spec.PodLabel = &v1alpha1.PodLabel{Key: key, Value: value}
	}
	return spec
}

// ownerOf returns the owner that a pin names; "": none.
func ownerOf(spec *v1alpha1.PodIPPinSpec) string {
	if spec.PodNamespace == "" {
		return ""
	}
	if spec.PodName != "" {
		return OwnerByName(spec.PodNamespace, spec.PodName)
	}
	if spec.PodLabel != nil {
		return OwnerByLabel(spec.PodNamespace, spec.PodLabel.Key, spec.PodLabel.Value)
	}
	return ""
}
