// Package chart tests the Helm chart and the examples: their objects, their refusals, and, on the
// real API server, that the operator works with exactly the rights of the chart.
//
// Only this suite finds gaps of an installation: a missing right, a value that reaches no flag, an
// upgrade that deletes pools.
package chart

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	root      = "../.."
	chart     = root + "/charts/cilium-pool-operator"
	examples  = root + "/examples"
	namespace = "kube-system"
	release   = "cilium-pool-operator"
)

var shared cptest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

const helm3, helm4 = harness.Helm3, harness.Helm4

func majors() []string { return []string{helm3, helm4} }

// tryHelm runs a Helm with its own home folder and returns its output.
func tryHelm(t *testing.T, major string, args ...string) (string, error) {
	t.Helper()
	return harness.Helm(t.Context(), major, t.TempDir(), args...)
}

func helm(t *testing.T, major string, args ...string) string {
	t.Helper()
	out, err := tryHelm(t, major, args...)
	harness.Must(t, err)
	return out
}

// render returns the objects of the chart.
func render(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()
	return renderBy(t, helm4, args...)
}

func renderBy(t *testing.T, major string, args ...string) []*unstructured.Unstructured {
	t.Helper()
	found, err := harness.RenderChart(t.Context(), major, args...)
	harness.Must(t, err)
	return found
}

func objects(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	found, err := harness.Objects(manifest)
	harness.Must(t, err)
	return found
}

// byName returns the objects by their kinds and names.
func byName(all []*unstructured.Unstructured) map[string]any {
	m := map[string]any{}
	for _, o := range all {
		m[o.GetKind()+" "+o.GetName()] = o.Object
	}
	return m
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	harness.Must(t, err)
	return data
}

// ownCRDs returns the definitions that the code embeds.
func ownCRDs(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := crds.All()
	harness.Must(t, err)
	return all
}

func ofKind(t *testing.T, all []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(all), func(o *unstructured.Unstructured) bool { return o.GetKind() != kind })
	if len(found) == 0 {
		t.Fatalf("no %s among the objects", kind)
	}
	return found
}

// typed converts a rendered object, and fails on a field that its type does not have.
func typed[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return into
}

// writeFile writes a file for one test and returns its path.
func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	harness.Must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
