// Package schema generates changes of a custom resource's spec from the schema of its CRD, one
// field at a time, and knows whether each value is wrong.
package schema

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

// Schema is that of a kind.
type Schema struct {
	root *apiextensionsv1.JSONSchemaProps
}

// Of returns the schema of a kind of this project.
func Of(kind string) (*Schema, error) {
	definitions, err := crds.All()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool { return d.Spec.Names.Kind == kind })
	if i < 0 {
		return nil, fmt.Errorf("no CRD is of kind %s", kind)
	}
	return &Schema{definitions[i].Spec.Versions[0].Schema.OpenAPIV3Schema}, nil
}
