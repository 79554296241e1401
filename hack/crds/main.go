// Command crds completes the CRDs that controller-gen generates:
//
//   - upper bounds for the three metav1.LabelSelectors of PodIPPool. That type carries none, and
//     the API server refuses CEL rules over lists and strings without bounds.
//   - descriptions without the line breaks of the Go comments, which kubectl explain would print.
//   - the annotation that names the schema.
//
// Usage:
//
//	crds pkg/crd/crds/*.yaml
package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

// bounds of a selector, by path in its schema. A label key is a DNS name of
// 253 characters, '/', and a name of 63.
var bounds = map[string]map[string]any{
	"properties.matchLabels":                                    {"maxProperties": 32},
	"properties.matchLabels.additionalProperties":               {"maxLength": 63},
	"properties.matchExpressions":                               {"maxItems": 32},
	"properties.matchExpressions.items.properties.key":          {"maxLength": 317},
	"properties.matchExpressions.items.properties.operator":     {"enum": []string{"In", "NotIn", "Exists", "DoesNotExist"}},
	"properties.matchExpressions.items.properties.values":       {"maxItems": 256},
	"properties.matchExpressions.items.properties.values.items": {"maxLength": 63},
}

const specPath = "schema.openAPIV3Schema.properties.spec.properties."

var selectors = []string{"nodeSelector", "podAddresses.properties.podSelector", "podAddresses.properties.namespaceSelector"}

// lineBreak matches a line break within a paragraph: none at an empty line, or before a list item
// or an indented line.
var lineBreak = regexp.MustCompile(`([^\n])\n([^\s*-]|[*-]\S)`)

func main() {
	for _, file := range os.Args[1:] {
		if err := complete(file); err != nil {
			fmt.Fprintf(os.Stderr, "crds: %s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

func complete(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return err
	}
	if strings.HasSuffix(file, "podippools.yaml") {
		if err := bound(crd); err != nil {
			return err
		}
	}
	joinLines(crd)
	if err := annotate(crd); err != nil {
		return err
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("---\n"), out...), 0o644)
}

func bound(crd map[string]any) error {
	for _, version := range crd["spec"].(map[string]any)["versions"].([]any) {
		for _, selector := range selectors {
			for path, limits := range bounds {
				schema, err := at(version.(map[string]any), specPath+selector+"."+path)
				if err != nil {
					return err
				}
				maps.Copy(schema, limits)
			}
		}
	}
	return nil
}

// at returns the object at a path of keys joined by dots.
func at(object map[string]any, path string) (map[string]any, error) {
	for _, key := range strings.Split(path, ".") {
		child, ok := object[key].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("no object %q on the way to %q", key, path)
		}
		object = child
	}
	return object, nil
}

// joinLines joins the lines of each paragraph of all descriptions.
func joinLines(value any) {
	switch value := value.(type) {
	case map[string]any:
		if text, ok := value["description"].(string); ok {
			value["description"] = lineBreak.ReplaceAllString(text, "$1 $2")
		}
		for _, v := range value {
			joinLines(v)
		}
	case []any:
		for _, v := range value {
			joinLines(v)
		}
	}
}

// annotate sets the annotation that names the schema.
func annotate(crd map[string]any) error {
	data, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	typed := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, typed); err != nil {
		return err
	}
	schema, err := crds.Schema(typed)
	if err != nil {
		return err
	}
	annotations, err := at(crd, "metadata.annotations")
	if err != nil {
		return err
	}
	annotations[crds.SchemaAnnotation] = schema
	return nil
}
