package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Every field of a spec has bounds, and a test of this package sets it.
func TestEveryFieldIsBoundedAndTried(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	harness.Must(t, err)
	tests := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		harness.Must(t, err)
		tests += string(text)
	}
	definitions, err := crds.All()
	harness.Must(t, err)
	for _, d := range definitions {
		visit("", d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], func(field string, p apiextensionsv1.JSONSchemaProps) {
			bounded := map[string]bool{
				"object": p.AdditionalProperties == nil || p.MaxProperties != nil, "boolean": true, "array": p.MaxItems != nil,
				"": p.XIntOrString && len(p.XValidations) > 0, "integer": p.Minimum != nil && p.Maximum != nil, "string": p.MaxLength != nil || len(p.Enum) > 0,
			}
			if !bounded[p.Type] {
				t.Errorf("%s of a %s has no bounds", field, d.Spec.Names.Kind)
			}
			if !strings.Contains(tests, field+": ") && !strings.Contains(tests, `"`+field+`"`) && !strings.Contains(tests, field+":\n") {
				t.Errorf("no test sets %s of a %s", field, d.Spec.Names.Kind)
			}
		})
	}
}

// visit calls do for each field of an object, an item or an entry.
func visit(name string, p apiextensionsv1.JSONSchemaProps, do func(field string, p apiextensionsv1.JSONSchemaProps)) {
	if name != "" {
		do(name, p)
	}
	for field, property := range p.Properties {
		visit(field, property, do)
	}
	if p.Items != nil {
		visit(name, *p.Items.Schema, do)
	}
	if p.AdditionalProperties != nil {
		visit(name, *p.AdditionalProperties.Schema, do)
	}
}
