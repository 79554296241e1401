package chart

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func filesOf(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(examples + pattern)
	harness.Must(t, err)
	if len(files) < 2 {
		t.Fatalf("%s: %v", pattern, files)
	}
	return files
}

func readObjects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	return objects(t, string(readFile(t, file)))
}

// apply sends objects to the API server, strictly: an unknown field is an error.
func apply(t *testing.T, all []*unstructured.Unstructured) {
	t.Helper()
	c, err := harness.NewClient(shared.Cluster(t).Config())
	harness.Must(t, err)
	for _, o := range all {
		if err := client.NewDryRunClient(c).Create(t.Context(), o.DeepCopy(), client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func TestExamplesApply(t *testing.T) {
	for _, file := range filesOf(t, "/*.yaml") {
		if strings.Contains(filepath.Base(file), "values") {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			all := readObjects(t, file)
			apply(t, all)
			for _, o := range all {
				if o.GetKind() != "PodIPPool" {
					continue
				}
				// A kubelet may set other labels on its own Node.
				if keys := crd.KubeletLabels(typed[v1alpha1.PodIPPool](t, o).Spec.NodeSelector); len(keys) > 0 {
					t.Errorf("pool %s selects nodes by %v, which a kubelet may set on its own Node", o.GetName(), keys)
				}
			}
		})
	}
}

// Both Helms accept each of our chart's example values files, next to the others.
func TestExampleValuesRender(t *testing.T) {
	for _, major := range majors() {
		for _, file := range filesOf(t, "/values*.yaml") {
			renderBy(t, major, "-f", examples+"/values.yaml", "-f", file)
		}
	}
}

// The values for a size of the cluster request the operator's peak of memory by docs/performance.md, and at most half as much
// again. The chart's default is that of 1,000 nodes.
func TestMemoryBySizeOfCluster(t *testing.T) {
	page := string(readFile(t, root+"/docs/performance.md"))
	formula := regexp.MustCompile(`operator, peak memory \| (\d+) MB \+ (\d+) kB per node`).FindStringSubmatch(page)
	if formula == nil {
		t.Fatal("docs/performance.md has no formula of the operator's memory")
	}
	base, err := strconv.Atoi(formula[1])
	harness.Must(t, err)
	perNode, err := strconv.Atoi(formula[2])
	harness.Must(t, err)
	memoryOf := func(args ...string) int64 {
		deployment := typed[appsv1.Deployment](t, ofKind(t, render(t, args...), "Deployment")[0])
		return deployment.Spec.Template.Spec.Containers[0].Resources.Requests.Memory().Value()
	}
	for _, nodes := range []int{100, 1000, 5000} {
		peak := int64(base)*1e6 + int64(nodes)*int64(perNode)*1e3
		if got := memoryOf("-f", fmt.Sprintf("%s/values-%d-nodes.yaml", examples, nodes)); got < peak || got > peak*3/2 {
			t.Errorf("%d nodes: %d bytes are requested, the peak is %d", nodes, got, peak)
		}
	}
	if got, want := memoryOf(), memoryOf("-f", examples+"/values-1000-nodes.yaml"); got != want {
		t.Errorf("by default %d bytes are requested, for 1,000 nodes %d", got, want)
	}
}

// Cilium's own chart, from its Go module, renders the examples into the settings that the operator
// needs. In the other modes agents run without a range of their own, and cilium-operator allocates
// no address.
func TestExampleValuesOfCilium(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/cilium").Output()
	harness.Must(t, err)
	cilium := filepath.Join(strings.TrimSpace(string(dir)), "install/kubernetes/cilium")
	always := map[string]string{
		"ipam-cilium-node-update-rate": "15s", "kube-proxy-replacement": "true", "enable-endpoint-routes": "true", "enable-bpf-masquerade": "true",
		"routing-mode": "native", "auto-direct-node-routes": "true",
	}
	inCRDMode := map[string]string{"ipam": "crd", "ipv4-range": "169.254.254.0/24", "ipv6-range": "100::/96"}
	otherMode := map[string]string{"ipv4-range": "auto", "ipv6-range": "auto", "enable-bgp-control-plane": "true"}
	for file, want := range map[string]map[string]string{
		"":            withPairs(inCRDMode, "enable-ipv4", "true", "enable-ipv6", "false", "ipv4-native-routing-cidr", "100.64.0.0/12"),
		"-dual-stack": withPairs(inCRDMode, "enable-ipv4", "true", "enable-ipv6", "true", "ipv6-native-routing-cidr", "fd00:100::/32"),
		"-ipv6":       withPairs(inCRDMode, "enable-ipv4", "false", "enable-ipv6", "true", "ipv6-native-routing-cidr", "fd00:100::/32"),
		"-multi-pool": withPairs(otherMode, "ipam", "multi-pool"),
		"-kubernetes": withPairs(otherMode, "ipam", "kubernetes", "annotate-k8s-node", "true", "k8s-require-ipv4-pod-cidr", "true"),
	} {
		t.Run("cilium-values"+file, func(t *testing.T) {
			values := []string{"-f", examples + "/cilium-values.yaml", "-f", examples + "/cilium-values" + file + ".yaml"}
			if want["ipam"] != "crd" {
				values = append(values, "-f", examples+"/cilium-values-bgp.yaml")
			}
			rendered := objects(t, helm(t, helm4, append([]string{"template", "cilium", cilium, "--namespace", namespace}, values...)...))
			// Cilium's parts on the host network start on nodes without addresses.
			shortage := "cilium-pool.io/no-addresses"
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

// withPairs returns a copy of a map with further pairs.
func withPairs(base map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(base)
	for pair := range slices.Chunk(pairs, 2) {
		out[pair[0]] = pair[1]
	}
	return out
}

// The README describes each example.
func TestReadmeListsExamples(t *testing.T) {
	readme := string(readFile(t, examples+"/README.md"))
	for _, file := range filesOf(t, "/*.yaml") {
		if name := filepath.Base(file); !strings.Contains(readme, "("+name+")") {
			t.Errorf("examples/README.md does not mention %s", name)
		}
	}
}

// The chart's page on Artifact Hub is true: its CRDs exist, its image is the one that pods run, and
// the API server accepts the examples.
func TestArtifactHub(t *testing.T) {
	var meta struct{ Annotations map[string]string }
	harness.Must(t, yaml.Unmarshal(readFile(t, chart+"/Chart.yaml"), &meta))
	var shown []struct{ Kind, Version, Name string }
	harness.Must(t, yaml.Unmarshal([]byte(meta.Annotations["artifacthub.io/crds"]), &shown))
	definitions := ownCRDs(t)
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
	var images []struct{ Image string }
	harness.Must(t, yaml.Unmarshal([]byte(meta.Annotations["artifacthub.io/images"]), &images))
	deployment := typed[appsv1.Deployment](t, ofKind(t, render(t), "Deployment")[0])
	if runs := deployment.Spec.Template.Spec.Containers[0].Image; len(images) != 1 || images[0].Image != runs {
		t.Errorf("artifacthub.io/images has %v, and pods run %s", images, runs)
	}
	var examples []map[string]any
	harness.Must(t, yaml.Unmarshal([]byte(meta.Annotations["artifacthub.io/crdsExamples"]), &examples))
	if len(examples) != len(definitions)-1 { // the operator alone creates PodIPBlocks
		t.Errorf("%d examples for %d CRDs", len(examples), len(definitions))
	}
	for _, e := range examples {
		apply(t, []*unstructured.Unstructured{{Object: e}})
	}
}

// The objects of Cilium's BGP control plane have no field unknown to Cilium, and refer to each
// other.
func TestExamplesOfCiliumBGP(t *testing.T) {
	var peer *ciliumv2.CiliumBGPPeerConfig
	var adverts []*ciliumv2.CiliumBGPAdvertisement
	for _, file := range filesOf(t, "/bgp/cilium-*.yaml") {
		for _, o := range readObjects(t, file) {
			switch o.GetKind() {
			case "CiliumBGPClusterConfig":
				typed[ciliumv2.CiliumBGPClusterConfig](t, o)
			case "CiliumBGPPeerConfig":
				peer = typed[ciliumv2.CiliumBGPPeerConfig](t, o)
			default:
				adverts = append(adverts, typed[ciliumv2.CiliumBGPAdvertisement](t, o))
			}
		}
	}
	if len(adverts) != 2 || len(peer.Spec.Families) != 1 {
		t.Fatalf("%d advertisements, families %v", len(adverts), peer.Spec.Families)
	}
	for _, a := range adverts {
		for key, value := range peer.Spec.Families[0].Advertisements.MatchLabels {
			if a.Labels[key] != value {
				t.Errorf("the peers do not select advertisement %v: labels %v", a.Spec.Advertisements, a.Labels)
			}
		}
	}
}

// Cilium announces only blocks of the size in the CiliumPodIPPool (v1.20.1,
// pkg/bgp/manager/reconciler/pod_ip_pool.go). So all pools that serve one have the same block
// size.
func TestExamplePoolsAreOfOneSize(t *testing.T) {
	size := int32(0)
	for _, o := range slices.Concat(readObjects(t, examples+"/pools.yaml"), readObjects(t, examples+"/pool-shanghai.yaml")) {
		pool := typed[v1alpha1.PodIPPool](t, o)
		if size != 0 && pool.Spec.IPv4.BlockSize != size {
			t.Errorf("pool %s has blocks of /%d, another one of /%d: Cilium's BGP would announce none of one", pool.Name, pool.Spec.IPv4.BlockSize, size)
		}
		size = pool.Spec.IPv4.BlockSize
	}
}

// Moving a tag of a base image must not change the build.
func TestBaseImagesArePinned(t *testing.T) {
	bases := regexp.MustCompile(`(?m)^FROM (?:--\S+ )*(\S+)`).FindAllStringSubmatch(string(readFile(t, root+"/Dockerfile")), -1)
	if len(bases) == 0 {
		t.Fatal("the Dockerfile has no base image")
	}
	for _, base := range bases {
		if base[1] != "scratch" && !regexp.MustCompile(`@sha256:[0-9a-f]{64}$`).MatchString(base[1]) {
			t.Errorf("base image %s has no digest", base[1])
		}
	}
}
