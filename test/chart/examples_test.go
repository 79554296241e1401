package chart

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func isValues(file string) bool { return strings.Contains(filepath.Base(file), "values") }

func exampleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(examples + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples found: %v", err)
	}
	return files
}

func readObjects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, string(data))
}

// apply sends objects to the API server, strictly: an unknown field is an error.
func apply(t *testing.T, all []*unstructured.Unstructured) {
	t.Helper()
	client, err := dynamic.NewForConfig(shared.Cluster(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		gvr, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		_, err := client.Resource(gvr).Create(t.Context(), o, metav1.CreateOptions{
			FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll},
		})
		if err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func TestExamplesApply(t *testing.T) {
	for _, file := range exampleFiles(t) {
		if isValues(file) {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) { apply(t, readObjects(t, file)) })
	}
}

// The example values-pools.yaml has the same pools as pools.yaml.
func TestExampleValues(t *testing.T) {
	pools := ofKind(t, render(t, "-f", examples+"/values.yaml", "-f", examples+"/values-pools.yaml", "--api-versions", "cilium-pool.io/v1alpha1/PodIPPool"), "PodIPPool")
	apply(t, pools)
	specs := func(all []*unstructured.Unstructured) map[string]any {
		m := map[string]any{}
		for _, o := range all {
			m[o.GetName()] = normal(o.Object["spec"])
		}
		return m
	}
	if diff := cmp.Diff(specs(readObjects(t, examples+"/pools.yaml")), specs(pools)); diff != "" {
		t.Errorf("(-pools.yaml +values-pools.yaml):\n%s", diff)
	}
}

// Both Helms accept each of our chart's example values files, next to the others.
func TestExampleValuesRender(t *testing.T) {
	files, err := filepath.Glob(examples + "/values*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v: %v", files, err)
	}
	for _, major := range majors() {
		for _, file := range files {
			renderBy(t, major, "-f", examples+"/values.yaml", "-f", examples+"/values-pools.yaml", "-f", file)
		}
	}
}

// normal converts numbers to one type, as the two decoders differ.
func normal(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = normal(v[key])
		}
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case int64:
		return float64(v)
	}
	return value
}

// Cilium's own chart, from its Go module, renders the examples into the settings that the operator
// needs. In the other modes agents run without a range of their own, and cilium-operator allocates
// no address.
func TestExampleValuesOfCilium(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/cilium").Output()
	if err != nil {
		t.Fatal(err)
	}
	cilium := filepath.Join(strings.TrimSpace(string(dir)), "install/kubernetes/cilium")
	always := map[string]string{
		"ipam-cilium-node-update-rate": "15s", "kube-proxy-replacement": "true", "enable-endpoint-routes": "true", "enable-bpf-masquerade": "true",
		"routing-mode": "native", "auto-direct-node-routes": "true",
	}
	inCRDMode := map[string]string{"ipam": "crd", "ipv4-range": "169.254.254.0/24", "ipv6-range": "100::/96"}
	otherMode := map[string]string{"ipv4-range": "auto", "ipv6-range": "auto", "enable-bgp-control-plane": "true"}
	for file, want := range map[string]map[string]string{
		"":            with(inCRDMode, "enable-ipv4", "true", "enable-ipv6", "false", "ipv4-native-routing-cidr", "100.64.0.0/12"),
		"-dual-stack": with(inCRDMode, "enable-ipv4", "true", "enable-ipv6", "true", "ipv6-native-routing-cidr", "fd00:100::/32"),
		"-ipv6":       with(inCRDMode, "enable-ipv4", "false", "enable-ipv6", "true", "ipv6-native-routing-cidr", "fd00:100::/32"),
		"-multi-pool": with(otherMode, "ipam", "multi-pool"),
		"-kubernetes": with(otherMode, "ipam", "kubernetes", "annotate-k8s-node", "true", "k8s-require-ipv4-pod-cidr", "true"),
	} {
		t.Run("cilium-values"+file, func(t *testing.T) {
			values := []string{"-f", examples + "/cilium-values.yaml", "-f", examples + "/cilium-values" + file + ".yaml"}
			if want["ipam"] != "crd" {
				values = append(values, "-f", examples+"/cilium-values-bgp.yaml")
			}
			rendered := objects(t, helm(t, helm4, append([]string{"template", "cilium", cilium, "--namespace", namespace}, values...)...))
			// Cilium's parts on the host network start on nodes without addresses.
			shortage := argsOf(t, "-f", examples+"/values.yaml")["shortage-taint"]
			for _, o := range slices.Concat(ofKind(t, rendered, "Deployment"), ofKind(t, rendered, "DaemonSet")) {
				fields, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
				pod := typed[corev1.PodTemplateSpec](t, &unstructured.Unstructured{Object: fields}).Spec
				if pod.HostNetwork && !tolerates(pod.Tolerations, corev1.Taint{Key: shortage, Effect: corev1.TaintEffectNoSchedule}) {
					t.Errorf("%s does not tolerate %s", o.GetName(), shortage)
				}
				if o.GetName() == "cilium-operator" && want["ipam"] == "multi-pool" && !slices.Contains(pod.Containers[0].Args, "--ipam=crd") {
					t.Errorf("cilium-operator allocates: %v", pod.Containers[0].Args)
				}
			}
			for _, o := range ofKind(t, rendered, "ConfigMap") {
				if o.GetName() != "cilium-config" {
					continue
				}
				got, _, _ := unstructured.NestedStringMap(o.Object, "data")
				maps.Copy(want, always)
				for key, value := range want {
					if got[key] != value {
						t.Errorf("cilium-config: %s is %q, want %q", key, got[key], value)
					}
				}
			}
		})
	}
}

// with returns a copy of a map with further pairs.
func with(base map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(base)
	for pair := range slices.Chunk(pairs, 2) {
		out[pair[0]] = pair[1]
	}
	return out
}

// The README describes each example.
func TestReadmeListsExamples(t *testing.T) {
	readme, err := os.ReadFile(examples + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range exampleFiles(t) {
		if name := filepath.Base(file); !strings.Contains(string(readme), "("+name+")") {
			t.Errorf("examples/README.md does not mention %s", name)
		}
	}
}

// The chart's page on Artifact Hub is true: its CRDs exist, and the API server accepts the
// examples.
func TestArtifactHub(t *testing.T) {
	data, err := os.ReadFile(chart + "/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var meta struct{ Annotations map[string]string }
	harness.Must(t, yaml.Unmarshal(data, &meta))
	var shown []struct{ Kind, Version, Name string }
	harness.Must(t, yaml.Unmarshal([]byte(meta.Annotations["artifacthub.io/crds"]), &shown))
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, s := range shown {
		got = append(got, s.Name+" "+s.Version+" "+s.Kind)
	}
	for _, d := range definitions {
		want = append(want, d.Name+" "+d.Spec.Versions[0].Name+" "+d.Spec.Names.Kind)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CRDs (-code +Chart.yaml):\n%s", diff)
	}
	var examples []map[string]any
	harness.Must(t, yaml.Unmarshal([]byte(meta.Annotations["artifacthub.io/crdsExamples"]), &examples))
	if len(examples) != len(definitions) {
		t.Errorf("%d examples for %d CRDs", len(examples), len(definitions))
	}
	for _, e := range examples {
		apply(t, []*unstructured.Unstructured{{Object: e}})
	}
}
