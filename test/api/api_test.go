// Package api tests the CRDs on a real API server: accepted objects, refused ones with their
// messages, and kubectl's output.
//
// Only this suite finds a CRD rule that is missing, too strict, or has the wrong message.
package api

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

var shared cptest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// resource returns a client for podippools or podipblocks.
func resource(t *testing.T, plural string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(shared.Cluster(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(v1alpha1.GroupVersion.WithResource(plural))
}

// object builds an object of this project from the YAML of its spec.
func object(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatalf("spec of the test: %v\n%s", err, spec)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	o.SetAPIVersion(v1alpha1.GroupVersion.String())
	o.SetKind(kind)
	o.SetName(name)
	return o
}

// create creates an object for one test.
func create(t *testing.T, client dynamic.ResourceInterface, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created, err := client.Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return created
}

// expect compares the API server's response with the expected one; an empty want stands for
// acceptance.
func expect(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want == "":
	case err == nil:
		t.Errorf("accepted, want it refused with %q", want)
	case !apierrors.IsInvalid(err):
		t.Errorf("failed rather than being refused: %v", err)
	case strings.Contains(err.Error(), "rule:") && !strings.Contains(want, "rule:"), strings.Contains(err.Error(), "budget"):
		t.Errorf("a rule could not be evaluated: %v", err)
	case !strings.Contains(withoutValues(err.Error()), withoutValues(want)):
		t.Errorf("refused with\n%v\nwant\n%s", err, want)
	}
}

var refusedValue = regexp.MustCompile(`(Invalid value: )"[^"]*": `)

// withoutValues removes the refused values: API servers of Kubernetes 1.32 print the type instead
// of some.
func withoutValues(text string) string { return refusedValue.ReplaceAllString(text, "$1") }

// kubectlPath returns the path of the kubectl that make controlplane installs.
func kubectlPath() string {
	dir := os.Getenv("CPO_BIN_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", ".cache", "bin")
	}
	return filepath.Join(dir, "kubectl")
}
