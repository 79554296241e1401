package fakeapi

import (
	"context"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

// kindSchema validates the objects of a kind as an API server does: by the schema of its CRD, with
// its rules in CEL.
type kindSchema struct {
	validator  validation.SchemaValidator
	structural *schema.Structural
	rules      *cel.Validator
}

// schemas returns the schemas of this project's CRDs, by kind.
var schemas = sync.OnceValues(func() (map[string]kindSchema, error) {
	all, err := crds.All()
	if err != nil {
		return nil, err
	}
	out := map[string]kindSchema{}
	for _, crd := range all {
		internal := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil); err != nil {
			return nil, err
		}
		validator, _, err := validation.NewSchemaValidator(internal)
		if err != nil {
			return nil, err
		}
		structural, err := schema.NewStructural(internal)
		if err != nil {
			return nil, err
		}
		out[crd.Spec.Names.Kind] = kindSchema{validator, structural, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
	}
	return out, nil
})

// valid performs a write of obj, and fails the test if an API server would refuse it.
func (b *Cluster) valid(ctx context.Context, obj client.Object, write func() error) error {
	kinds, err := schemas()
	if err != nil {
		return err
	}
	s, ok := kinds[kindOf(obj)]
	if !ok {
		return write()
	}
	old := obj.DeepCopyObject().(client.Object)
	if err := b.API.Get(ctx, client.ObjectKeyFromObject(obj), old); err != nil {
		old = nil
	}
	if err := write(); err != nil {
		return err
	}
	if err := s.refusal(ctx, obj, old); err != nil {
		b.T.Errorf("the API server refuses %s %s: %v", kindOf(obj), obj.GetName(), err)
	}
	return nil
}

// refusal returns the reasons for which an API server refuses obj, in place of old, which may be
// nil.
func (s kindSchema) refusal(ctx context.Context, obj, old client.Object) error {
	now, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	errs := validation.ValidateCustomResource(nil, now, s.validator)
	var was any
	if old != nil {
		if was, err = runtime.DefaultUnstructuredConverter.ToUnstructured(old); err != nil {
			return err
		}
	}
	broken, _ := s.rules.Validate(ctx, (*field.Path)(nil), s.structural, now, was, celconfig.RuntimeCELCostBudget)
	return append(errs, broken...).ToAggregate()
}
