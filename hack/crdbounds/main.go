// Command crdbounds writes upper bounds into the generated CRD of PodIPPool,
// where three fields are metav1.LabelSelectors. That type carries none, and
// the API server refuses CEL rules over lists and strings without bounds.
//
//	crdbounds pkg/crd/crds/cilium-pool.io_podippools.yaml
package main

import (
	"fmt"
	"maps"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
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

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crdbounds CRD.yaml")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "crdbounds:", err)
		os.Exit(1)
	}
}

func run(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	bounded, err := bound(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, bounded, 0o644)
}

func bound(data []byte) ([]byte, error) {
	var crd struct {
		Spec struct {
			Versions []map[string]any `json:"versions"`
		} `json:"spec"`
	}
	var whole map[string]any
	if err := yaml.Unmarshal(data, &whole); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return nil, err
	}
	for _, version := range crd.Spec.Versions {
		for _, selector := range selectors {
			for path, limits := range bounds {
				schema, err := at(version, specPath+selector+"."+path)
				if err != nil {
					return nil, err
				}
				maps.Copy(schema, limits)
			}
		}
	}
	whole["spec"].(map[string]any)["versions"] = crd.Spec.Versions
	out, err := yaml.Marshal(whole)
	return append([]byte("---\n"), out...), err
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
