package crds_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

func definitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	return definitions
}

func TestAll(t *testing.T) {
	var got []string
	for _, crd := range definitions(t) {
		got = append(got, crd.Name)
	}
	if diff := cmp.Diff([]string{"podipblocks.cilium-pool.io", "podippins.cilium-pool.io", "podippools.cilium-pool.io"}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// kubectl explain has something to say about every field, without a line break within a paragraph.
func TestEveryFieldIsDescribed(t *testing.T) {
	for _, crd := range definitions(t) {
		for _, version := range crd.Spec.Versions {
			described(t, crd.Spec.Names.Kind, *version.Schema.OpenAPIV3Schema)
		}
	}
}

func described(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if regexp.MustCompile(`[^\n]\n\w`).MatchString(schema.Description) {
		t.Errorf("%s: the description has a line break within a paragraph", path)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		described(t, path+"[]", *schema.Items.Schema)
	}
	for name, property := range schema.Properties {
		path := path + "." + name
		// The API server describes metadata itself.
		if property.Description == "" && name != "metadata" {
			t.Errorf("%s has no description", path)
		}
		described(t, path, property)
	}
}

// Every rule says how to fix a refused object.
func TestEveryRuleHasMessage(t *testing.T) {
	for _, crd := range definitions(t) {
		for _, version := range crd.Spec.Versions {
			explained(t, crd.Spec.Names.Kind, *version.Schema.OpenAPIV3Schema)
		}
	}
}

func explained(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	for _, rule := range schema.XValidations {
		if rule.Message == "" {
			t.Errorf("%s: rule %q has no message", path, rule.Rule)
		}
	}
	for name, property := range schema.Properties {
		explained(t, path+"."+name, property)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		explained(t, path+"[]", *schema.Items.Schema)
	}
}

// The annotation of a CRD is that of its schema: make generate writes it.
func TestSchemaAnnotation(t *testing.T) {
	named, err := crds.Schemas()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range definitions(t) {
		want, err := crds.Schema(crd)
		if err != nil || named[crd.Name] != want {
			t.Errorf("%s says %q, and its schema is %q (%v): run make generate", crd.Name, named[crd.Name], want, err)
		}
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		schema.Description = "another"
		if got, _ := crds.Schema(crd); got != want {
			t.Errorf("%s: a description makes another schema", crd.Name)
		}
		spec := schema.Properties["spec"]
		spec.Required = append(spec.Required, "another")
		schema.Properties["spec"] = spec
		if got, _ := crds.Schema(crd); got == want {
			t.Errorf("%s: a required field makes no other schema", crd.Name)
		}
	}
}

func TestMismatch(t *testing.T) {
	if got := crds.Mismatch("a", "x", "x"); got != "" {
		t.Errorf("the same schema: %s", got)
	}
	for _, served := range []string{"y", ""} {
		if crds.Mismatch("a", served, "x") == "" {
			t.Errorf("served %q, built with x: no word of it", served)
		}
	}
}
