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

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// values returns the values of a chart, as in its values.yaml.
func values(t *testing.T, path string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v := map[string]any{}
	if err := yaml.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
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

var (
	// dotted matches a key of values or a field of an object; a bracket or a value may follow.
	dotted = regexp.MustCompile(`^([a-z]\w*(?:\.[a-z][\w-]*)+)(?:\[|=|:|$)`)
	// kinds are the kinds with fields that the pages name.
	kinds = []any{
		v1alpha1.PodIPPool{}, v1alpha1.PodIPBlock{}, ciliumv2.CiliumNode{}, ciliumv2alpha1.CiliumPodIPPool{},
		corev1.Node{}, corev1.Pod{}, appsv1.Deployment{}, apiextensionsv1.CustomResourceDefinition{},
	}
)

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
	seen := 0
	for _, page := range pagesOfOurs(t) {
		for _, m := range codeSpan.FindAllStringSubmatch(prose(read(t, page)), -1) {
			key := dotted.FindStringSubmatch(m[1])
			if key == nil {
				continue
			}
			path := strings.Split(key[1], ".")
			if !slices.Contains(first, path[0]) || slices.Contains([]string{".go", ".txt", ".io"}, filepath.Ext(key[1])) {
				continue
			}
			seen++
			if !known(path) {
				t.Errorf("%s: neither values nor objects have %s", page, key[1])
			}
		}
	}
	if seen < 200 {
		t.Errorf("%d keys found: the pages name more", seen)
	}
}

// The chart has the values that commands on pages set.
func TestValuesInCommands(t *testing.T) {
	ours := values(t, filepath.Join(root, "charts/cilium-pool-operator/values.yaml"))
	set := regexp.MustCompile(`--set(?:-json|-string)? '?([\w.]+)=`)
	seen := 0
	for _, page := range pagesOfOurs(t) {
		text := strings.ReplaceAll(read(t, page), "\\\n", " ")
		for line := range strings.Lines(text) {
			if !strings.Contains(line, "charts/cilium-pool-operator") && strings.Contains(line, "cilium/cilium") {
				continue
			}
			for _, m := range set.FindAllStringSubmatch(line, -1) {
				seen++
				if !hasKey(ours, strings.Split(m[1], ".")) {
					t.Errorf("%s: the chart has no value %s", page, m[1])
				}
			}
		}
	}
	if seen < 5 {
		t.Errorf("%d values found: the pages set more", seen)
	}
}
