package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// mutates is the API that Helm finds in a cluster of Kubernetes 1.36.
const mutates = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

// requestsOf returns the numbers of addresses that the containers of a pod request, init containers
// first: IPv4 and IPv6. Limits must be equal.
func requestsOf(t *testing.T, pod *corev1.Pod) [][2]int64 {
	t.Helper()
	var out [][2]int64
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		requests, limits := c.Resources.Requests, c.Resources.Limits
		amount := func(list corev1.ResourceList, name corev1.ResourceName) int64 {
			quantity := list[name]
			return quantity.Value()
		}
		for _, name := range []corev1.ResourceName{v1alpha1.IPv4Resource, v1alpha1.IPv6Resource} {
			if amount(requests, name) != amount(limits, name) {
				t.Errorf("container %s requests %v, limited to %v", c.Name, requests, limits)
			}
		}
		out = append(out, [2]int64{amount(requests, v1alpha1.IPv4Resource), amount(requests, v1alpha1.IPv6Resource)})
	}
	return out
}

// requesting installs the policies of a mode that make pods request addresses, and returns a function
// that creates a pod, changed by a YAML text, in a dry run.
func (b *bed) requesting(mode string) (create func(change string) (*corev1.Pod, error)) {
	t := b.T
	t.Helper()
	for _, o := range render(t, "--set", "scheduling.enabled=true,scheduling.families={ipv4,ipv6},mode="+mode, "--api-versions", mutates) {
		if kind := o.GetKind(); kind == "MutatingAdmissionPolicy" || kind == "MutatingAdmissionPolicyBinding" {
			b.Create(o)
		}
	}
	dry := client.NewDryRunClient(b.Client)
	create = func(change string) (*corev1.Pod, error) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "none"}}
		b.Must(yaml.UnmarshalStrict([]byte(change), p))
		return p, dry.Create(t.Context(), p)
	}
	b.Eventually("the policies are in force", func() error {
		p, err := create("")
		if err == nil && !slices.Equal(requestsOf(t, p), [][2]int64{{1, 1}}) {
			err = fmt.Errorf("requests %v", p.Spec.Containers[0].Resources.Requests)
		}
		return err
	})
	return create
}

// In multi-pool mode pods request an address of the Cilium pool that annotations name, and none where
// no policy can know the pool, or its name makes no resource. None of them keeps a pod out.
func TestPodsRequestAddressesOfCiliumPools(t *testing.T) {
	b := newBed(t, helm4)
	create := b.requesting("multi-pool")
	b.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "green", Annotations: map[string]string{"ipam.cilium.io/ip-pool": "green"}}})
	const v4, v6 = "cilium-pool.io/ipv4", "cilium-pool.io/ipv6"
	for name, test := range map[string]struct {
		in, annotations string
		want            []string
	}{
		"none":                       {"default", "", []string{v4, v6}},
		"the default pool":           {"default", "ipam.cilium.io/ip-pool: default", []string{v4, v6}},
		"a pool":                     {"default", "ipam.cilium.io/ip-pool: blue", []string{"blue." + v4, "blue." + v6}},
		"a pool for a family":        {"default", "ipam.cilium.io/ip-pool: blue, ipam.cilium.io/ipv6-pool: red", []string{"blue." + v4, "red." + v6}},
		"of the namespace":           {"green", "", []string{"green." + v4, "green." + v6}},
		"the pod's own comes first":  {"green", "ipam.cilium.io/ipv4-pool: default", []string{v4, "green." + v6}},
		"only a selector may choose": {"default", "ipam.cilium.io/require-pool-match: 'true'", nil},
		"of one pod":                 {"default", "ipam.cilium.io/ip-pool: zz.web-0.shop.pods.cilium-pool.io", nil},
		"of one pod, the old name":   {"default", "ipam.cilium.io/ip-pool: web-0.shop.pod.cilium-pool.io", nil},
		"a name that is none":        {"default", "ipam.cilium.io/ip-pool: No_Pool/", nil},
		"a name that is too long":    {"default", "ipam.cilium.io/ip-pool: " + strings.Repeat("a", 201), nil},
		"a name with dots":           {"default", "ipam.cilium.io/ip-pool: a.b", []string{"a.b." + v4, "a.b." + v6}},
		"a reserved name":            {"default", "ipam.cilium.io/ip-pool: requests", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := create("metadata: {namespace: " + test.in + ", annotations: {" + test.annotations + "}}")
			harness.Must(t, err)
			got := p.Spec.Containers[0].Resources
			var names []string
			for resource, n := range got.Requests {
				names = append(names, string(resource))
				if limit := got.Limits[resource]; n.Value() != 1 || limit.Value() != 1 {
					t.Errorf("requests %v, limited to %v", got.Requests, got.Limits)
				}
			}
			slices.Sort(names)
			if !slices.Equal(names, test.want) {
				t.Errorf("requests %v, want %v", names, test.want)
			}
		})
	}
}

// The policies add a request of each family to the first container of pods on the pod network,
// and do not change existing requests.
func TestPodsRequestAddresses(t *testing.T) {
	create := newBed(t, helm4).requesting("crd")
	const (
		container = "name: c, image: none"
		one       = "resources: {requests: {cilium-pool.io/ipv4: 1}, limits: {cilium-pool.io/ipv4: 1}}"
	)
	for name, test := range map[string]struct {
		change string
		want   [][2]int64
	}{
		"plain":                          {"", [][2]int64{{1, 1}}},
		"several containers":             {"spec: {containers: [{" + container + "}, {name: d, image: none}]}", [][2]int64{{1, 1}, {0, 0}}},
		"init containers and sidecars":   {"spec: {initContainers: [{name: i, image: none}, {name: s, image: none, restartPolicy: Always}]}", [][2]int64{{0, 0}, {0, 0}, {1, 1}}},
		"requests of its own":            {"spec: {containers: [{" + container + ", resources: {requests: {cpu: 1}}}]}", [][2]int64{{1, 1}}},
		"a request of one family":        {"spec: {containers: [{" + container + ", " + strings.ReplaceAll(one, ": 1", ": 2") + "}]}", [][2]int64{{2, 1}}},
		"a request of no address":        {"spec: {containers: [{" + container + ", " + strings.ReplaceAll(one, ": 1", ": 0") + "}]}", [][2]int64{{0, 1}}},
		"a request of another container": {"spec: {containers: [{" + container + "}, {name: d, image: none, " + one + "}]}", [][2]int64{{0, 1}, {1, 0}}},
		"a request of an init container": {"spec: {initContainers: [{name: i, image: none, " + one + "}]}", [][2]int64{{1, 0}, {0, 1}}},
		"the host network":               {"spec: {hostNetwork: true}", [][2]int64{{0, 0}}},
		"the label":                      {"metadata: {labels: {" + v1alpha1.NoRequestLabel + ": 'true'}}", [][2]int64{{0, 0}}},
		"the label, false":               {"metadata: {labels: {" + v1alpha1.NoRequestLabel + ": 'false'}}", [][2]int64{{1, 1}}},
		"a static pod's mirror":          {"{metadata: {annotations: {" + corev1.MirrorPodAnnotationKey + ": hash}}, spec: {nodeName: n1}}", [][2]int64{{0, 0}}},
		"of a DaemonSet": {`{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]},
			spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
				{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}}}}`, [][2]int64{{1, 1}}},
		"bound by hand": {"spec: {nodeName: n1}", [][2]int64{{1, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := create(test.change)
			harness.Must(t, err)
			if diff := cmp.Diff(test.want, requestsOf(t, p)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if cpu := p.Spec.Containers[0].Resources.Requests.Cpu(); name == "requests of its own" && cpu.Value() != 1 {
				t.Errorf("the request for CPU is gone: %v", p.Spec.Containers[0].Resources)
			}
		})
	}
}
