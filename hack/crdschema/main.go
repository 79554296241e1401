// Command crdschema writes into generated CRDs the annotation that names their
// schema.
//
//	crdschema pkg/crd/crds/*.yaml
package main

import (
	"fmt"
	"os"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

func main() {
	for _, file := range os.Args[1:] {
		if err := annotate(file); err != nil {
			fmt.Fprintf(os.Stderr, "crdschema: %s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

func annotate(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		return err
	}
	schema, err := crds.Schema(crd)
	if err != nil {
		return err
	}
	const annotations = "  annotations:\n"
	before, after, found := strings.Cut(string(data), annotations)
	if !found || crd.Annotations[crds.SchemaAnnotation] != "" {
		return fmt.Errorf("not as controller-gen writes it")
	}
	line := fmt.Sprintf("    %s: %q\n", crds.SchemaAnnotation, schema)
	return os.WriteFile(file, []byte(before+annotations+line+after), 0o644)
}
