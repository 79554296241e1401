// Package schema generates changes of a custom resource's spec from the schema of its
// CRD, one field at a time, and says which of them the API server refuses. It evaluates
// the CRD by the API server's own libraries.
package schema

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

// The API server's own limits of what CEL rules may cost, of one call and of all
// (k8s.io/apiserver, pkg/apis/cel/config.go).
const (
	callLimit  = 1_000_000
	costBudget = 10_000_000
)

// Schema is that of a kind.
type Schema struct {
	root       *apiextensionsv1.JSONSchemaProps
	structural *structuralschema.Structural
	values     validation.SchemaValidator
	rules      *cel.Validator
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
	return read(definitions[i].Spec.Versions[0].Schema.OpenAPIV3Schema)
}

func read(root *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(root, internal, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, err
	}
	values, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, err
	}
	return &Schema{root, structural, values, cel.NewValidator(structural, true, callLimit)}, nil
}

// Refusal returns why the API server refuses an object in the place of old, or nil. A
// nil old says that the object is created. The object gets the schema's defaults.
func (s *Schema) Refusal(ctx context.Context, now, old map[string]any) field.ErrorList {
	defaulting.PruneNonNullableNullsWithoutDefaults(now, s.structural)
	defaulting.Default(now, s.structural)
	var errs field.ErrorList
	if old == nil {
		errs = validation.ValidateCustomResource(nil, now, s.values)
	} else {
		errs = validation.ValidateCustomResourceUpdate(nil, now, old, s.values)
	}
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, now)...)
	if slices.ContainsFunc(errs, blocksRules) {
		return errs
	}
	var before any // a nil map would be an old object
	if old != nil {
		before = old
	}
	broken, _ := s.rules.Validate(ctx, nil, s.structural, now, before, costBudget)
	return append(errs, broken...)
}

// blocksRules reports whether the API server leaves out CEL rules after an error.
func blocksRules(e *field.Error) bool {
	switch e.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}
