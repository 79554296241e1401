package docs

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

var shared cptest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// A real API server accepts the manifests that pages show. The test skips kinds of other
// projects.
func TestManifests(t *testing.T) {
	others := map[string]bool{"projectcalico.org/v3": true, "monitoring.coreos.com/v1": true, "kind.x-k8s.io/v1alpha4": true,
		"argoproj.io/v1alpha1": true, "karpenter.sh/v1": true, "karpenter.sh/v1alpha1": true, "helm.toolkit.fluxcd.io/v2": true,
		"kustomize.toolkit.fluxcd.io/v1": true, "CiliumNodeConfig": true, "CiliumPodIPPool": true}
	c, err := client.New(shared.Cluster(t).Config(), client.Options{})
	harness.Must(t, err)
	dry := client.NewDryRunClient(c)
	ours := 0
	for _, page := range files(t, isMarkdown) {
		for _, block := range fences(read(t, page)) {
			if block.language != "yaml" {
				continue
			}
			for _, doc := range strings.Split(block.code, "\n---\n") {
				o := &unstructured.Unstructured{}
				if err := yaml.UnmarshalStrict([]byte(doc), &o.Object); err != nil {
					t.Errorf("%s: %v\n%s", page, err, doc)
					continue
				}
				if o.GetAPIVersion() == "" || o.GetKind() == "" || others[o.GetAPIVersion()] || others[o.GetKind()] {
					continue // values of a chart, or only a part of a manifest
				}
				if mapping, err := c.RESTMapper().RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version); err == nil &&
					mapping.Scope.Name() == meta.RESTScopeNameNamespace && o.GetNamespace() == "" {
					o.SetNamespace("default")
				}
				if err := dry.Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
					t.Errorf("%s: %v\n%s", page, err, doc)
				}
				if strings.HasPrefix(o.GetAPIVersion(), "cilium-pool.io/") {
					ours++
				}
			}
		}
	}
	if ours < 3 {
		t.Errorf("%d manifests of ours found: the pages show more", ours)
	}
}
