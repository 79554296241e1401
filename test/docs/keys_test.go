package docs

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// values returns the values of a chart, as in its values.yaml.
func values(t *testing.T, path string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	harness.Must(t, err)
	v := map[string]any{}
	harness.Must(t, yaml.Unmarshal(data, &v))
	return v
}

// hasKey reports whether values have a key. Keys below an empty map or list are up to the
// reader.
func hasKey(v any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		return ok || v == nil
	}
	next, ok := m[path[0]]
	return ok && hasKey(next, path[1:])
}

// hasField reports whether a type has a field with a JSON name.
func hasField(of reflect.Type, path []string) bool {
	if len(path) == 0 {
		return true
	}
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		return hasField(of.Elem(), path)
	case reflect.Map, reflect.Interface:
		return true
	case reflect.Struct:
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if name == path[0] && hasField(of.Field(i).Type, path[1:]) || name == "" && of.Field(i).Anonymous && hasField(of.Field(i).Type, path) {
				return true
			}
		}
	}
	return false
}

// kinds are the kinds with fields that the pages name.
var kinds = []any{
	v1alpha1.PodIPPool{}, v1alpha1.PodIPBlock{}, ciliumv2.CiliumNode{}, ciliumv2alpha1.CiliumPodIPPool{},
	corev1.Node{}, corev1.Pod{}, appsv1.Deployment{}, apiextensionsv1.CustomResourceDefinition{},
}

// Chart values and fields that pages name exist: our chart's, Cilium's, and the fields of a
// PodIPPool's spec, which shares names with the values.
func TestKeysInPages(t *testing.T) {
	ours, ciliums := values(t, filepath.Join(root, "charts/cilium-pool-operator/values.yaml")), values(t, filepath.Join(ciliumModule(t), "install/kubernetes/cilium/values.yaml"))
	known := func(path []string) bool {
		if slices.Contains([]string{"spec", "status", "metadata"}, path[0]) {
			return slices.ContainsFunc(kinds, func(k any) bool { return hasField(reflect.TypeOf(k), path) })
		}
		return hasKey(ours, path) || hasKey(ciliums, path) || hasField(reflect.TypeFor[v1alpha1.PodIPPoolSpec](), path)
	}
	first := slices.Collect(maps.Keys(ours))
	first = append(first, "spec", "status")
	matches(t, pagesOfOurs(t), prose, "`([a-z]\\w*(?:\\.[a-z][\\w-]*)+)[\\[=:`]", 200, func(page string, m []string) {
		path := strings.Split(m[1], ".")
		ofOthers := !slices.Contains(first, path[0]) || slices.Contains([]string{".go", ".txt", ".io"}, filepath.Ext(m[1]))
		if !ofOthers && !known(path) {
			t.Errorf("%s: neither values nor objects have %s", page, m[1])
		}
	})
}

// The chart has the values that commands on pages set.
func TestValuesInCommands(t *testing.T) {
	ours := values(t, filepath.Join(root, "charts/cilium-pool-operator/values.yaml"))
	ofOurs := func(page string) string {
		return regexp.MustCompile(`(?m)^.* cilium/cilium .*$`).ReplaceAllString(joined(page), "")
	}
	matches(t, pagesOfOurs(t), ofOurs, `--set(?:-json|-string)? '?([\w.]+)=`, 5, func(page string, m []string) {
		if !hasKey(ours, strings.Split(m[1], ".")) {
			t.Errorf("%s: the chart has no value %s", page, m[1])
		}
	})
}
