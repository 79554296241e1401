// Package chart tests the Helm chart and the examples: their objects, their refusals, and, on the
// real API server, that the operator works with exactly the rights of the chart.
//
// Only this suite finds gaps of an installation: a missing right, a value that reaches no flag, an
// upgrade that deletes pools.
package chart

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

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

func helmPath(t *testing.T, major string) string {
	t.Helper()
	path, err := harness.HelmPath(major)
	harness.Must(t, err)
	return path
}

// tryHelm runs a Helm with its own home folder and returns its output.
func tryHelm(t *testing.T, major string, args ...string) (string, error) {
	t.Helper()
	return harness.Helm(t.Context(), major, t.TempDir(), args...)
}

func helm(t *testing.T, major string, args ...string) string {
	t.Helper()
	out, err := tryHelm(t, major, args...)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func ofKind(t *testing.T, all []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, o := range all {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
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
