package docs

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// Examples select nodes by labels that kubelets cannot set on their own Node.
func TestExamplesChooseByTrustedLabels(t *testing.T) {
	pools := 0
	for _, path := range files(t, func(name string) bool { return strings.HasSuffix(name, ".yaml") }) {
		if !strings.HasPrefix(path, "examples/") {
			continue
		}
		for _, doc := range strings.Split(read(t, path), "\n---\n") {
			pool := &v1alpha1.PodIPPool{}
			if err := yaml.Unmarshal([]byte(doc), pool); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if pool.Kind != "PodIPPool" {
				continue
			}
			pools++
			if keys := crd.KubeletLabels(pool.Spec.NodeSelector); len(keys) > 0 {
				t.Errorf("%s: pool %s selects nodes by %v, which a kubelet may set on its own Node", path, pool.Name, keys)
			}
		}
	}
	if pools == 0 {
		t.Error("no PodIPPool found in examples")
	}
}
