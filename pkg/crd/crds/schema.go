package crds

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SchemaAnnotation of a CRD names its schema, so that an operator detects whether the
// API server serves the schema it was built with.
const SchemaAnnotation = "cilium-pool.io/schema"

// Schema identifies the fields and defaults of all versions of a CRD. Descriptions and printer
// columns do not count.
func Schema(crd *apiextensionsv1.CustomResourceDefinition) (string, error) {
	body, err := json.Marshal(crd.Spec.Versions)
	if err != nil {
		return "", err
	}
	var versions []map[string]any
	if err := json.Unmarshal(body, &versions); err != nil {
		return "", err
	}
	for _, version := range versions {
		delete(version, "additionalPrinterColumns")
		strip(version)
	}
	if body, err = json.Marshal(versions); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(body))[:12], nil
}

// strip removes descriptions, but not properties named description, which are objects.
func strip(value any) {
	switch value := value.(type) {
	case map[string]any:
		if _, ok := value["description"].(string); ok {
			delete(value, "description")
		}
		for _, v := range value {
			strip(v)
		}
	case []any:
		for _, v := range value {
			strip(v)
		}
	}
}

// Schemas are the schemas of this build's CRDs, by name.
func Schemas() (map[string]string, error) {
	crds, err := All()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, crd := range crds {
		out[crd.Name] = crd.Annotations[SchemaAnnotation]
	}
	return out, nil
}

// Mismatch describes how the schema that the API server serves differs from the one the
// operator was built with, and how to fix that; "": it does not. A CRD without a schema
// name predates the annotation.
func Mismatch(name, served, built string) string {
	if served == built {
		return ""
	}
	if served == "" {
		served = "unknown, as it has no annotation " + SchemaAnnotation
	}
	return fmt.Sprintf("CRD %s is not the one that this operator was built with (schema served: %s; built with: %s). "+
		"The API server drops or refuses fields that only one of them knows, so claims may fail. "+
		"Install chart and image of one version: helm upgrade cilium-pool-operator CHART -n NAMESPACE --reset-then-reuse-values. "+
		"With crds.enabled=false, apply that chart's files/crds with kubectl apply --server-side", name, served, built)
}

// ErrDeleted means that a CRD does not exist, or is being deleted.
var ErrDeleted = errors.New("the CRD is deleted, and all its objects with it")

// Served is the schema named in the annotation of a CRD; "": it has none.
func Served(ctx context.Context, c client.Reader, name string) (string, error) {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	err := c.Get(ctx, client.ObjectKey{Name: name}, obj)
	if apierrors.IsNotFound(err) || obj.DeletionTimestamp != nil {
		err = fmt.Errorf("%w: %s", ErrDeleted, name)
	}
	return obj.Annotations[SchemaAnnotation], err
}
