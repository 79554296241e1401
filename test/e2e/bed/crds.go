//go:build linux

package bed

import (
	"embed"
	"fmt"

	ciliumcrds "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/client/crds/v2"
	ciliumalphacrds "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/client/crds/v2alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

// allCRDs returns all of Cilium's CRDs, which cilium-operator would install, and ours.
func allCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	all, err := crds.All()
	if err != nil {
		return nil, err
	}
	for _, fs := range []embed.FS{ciliumcrds.EmbedFS, ciliumalphacrds.EmbedFS} {
		files, err := fs.ReadDir(".")
		if err != nil {
			return nil, fmt.Errorf("read Cilium's CRDs: %w", err)
		}
		for _, f := range files {
			data, err := fs.ReadFile(f.Name())
			if err != nil {
				return nil, fmt.Errorf("read Cilium's CRDs: %w", err)
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(data, crd); err != nil {
				return nil, fmt.Errorf("parse Cilium's CRD %s: %w", f.Name(), err)
			}
			all = append(all, crd)
		}
	}
	return all, nil
}
