package crd

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// Pin is a PodIPPin.
type Pin struct {
	CIDR netip.Prefix
	Node string
}

// PinFrom reads a pin. The API server refuses a malformed one, except where it was stored before
// its rules.
func PinFrom(obj *v1alpha1.PodIPPin) (Pin, error) {
	path := field.NewPath("spec")
	cidr, bad := parseCIDR(obj.Spec.CIDR, path.Child("cidr"))
	switch {
	case bad != nil:
		return Pin{}, bad
	case BlockName(cidr) != obj.Name:
		return Pin{}, field.Invalid(field.NewPath("metadata", "name"), obj.Name, fmt.Sprintf("does not follow from spec.cidr: must be %s", BlockName(cidr)))
	case obj.Spec.NodeName == "":
		return Pin{}, field.Required(path.Child("nodeName"), "name the Node")
	}
	return Pin{CIDR: cidr, Node: obj.Spec.NodeName}, nil
}
