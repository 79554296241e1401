package chart

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
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
		of := func(list corev1.ResourceList, name corev1.ResourceName) int64 {
			quantity := list[name]
			return quantity.Value()
		}
		for _, name := range []corev1.ResourceName{v1alpha1.IPv4Resource, v1alpha1.IPv6Resource} {
			if of(requests, name) != of(limits, name) {
				t.Errorf("container %s requests %v, limited to %v", c.Name, requests, limits)
			}
		}
		out = append(out, [2]int64{of(requests, v1alpha1.IPv4Resource), of(requests, v1alpha1.IPv6Resource)})
	}
	return out
}

func addresses(n int64) corev1.ResourceRequirements {
	list := corev1.ResourceList{v1alpha1.IPv4Resource: *resource.NewQuantity(n, resource.DecimalSI)}
	return corev1.ResourceRequirements{Requests: list, Limits: list}
}

// The policies add a request of each family to the first container of pods on the pod network,
// and do not change existing requests.
func TestPodsRequestAddresses(t *testing.T) {
	b := newBed(t, helm4)
	for _, o := range render(t, "--set", "scheduling.enabled=true,scheduling.families={ipv4,ipv6}", "--api-versions", mutates) {
		if kind := o.GetKind(); kind == "MutatingAdmissionPolicy" || kind == "MutatingAdmissionPolicyBinding" {
			b.Create(o)
		}
	}
	dry := client.NewDryRunClient(b.Client)
	create := func(mod func(*corev1.Pod)) (*corev1.Pod, error) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "none"}}
		mod(p)
		return p, dry.Create(t.Context(), p)
	}
	plain := func(*corev1.Pod) {}
	b.Eventually("the policies are in force", func() error {
		p, err := create(plain)
		if err == nil && !slices.Equal(requestsOf(t, p), [][2]int64{{1, 1}}) {
			err = fmt.Errorf("requests %v", p.Spec.Containers[0].Resources.Requests)
		}
		return err
	})
	tests := map[string]struct {
		mod  func(*corev1.Pod)
		want [][2]int64
	}{
		"plain": {plain, [][2]int64{{1, 1}}},
		"several containers": {func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d", Image: "none"})
		}, [][2]int64{{1, 1}, {0, 0}}},
		"init containers and sidecars": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{
				{Name: "i", Image: "none"}, {Name: "s", Image: "none", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			}
		}, [][2]int64{{0, 0}, {0, 0}, {1, 1}}},
		"requests of its own": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		}, [][2]int64{{1, 1}}},
		"a request of one family": {func(p *corev1.Pod) { p.Spec.Containers[0].Resources = addresses(2) }, [][2]int64{{2, 1}}},
		"a request of no address": {func(p *corev1.Pod) { p.Spec.Containers[0].Resources = addresses(0) }, [][2]int64{{0, 1}}},
		"a request of another container": {func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d", Image: "none", Resources: addresses(1)})
		}, [][2]int64{{0, 1}, {1, 0}}},
		"a request of an init container": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "none", Resources: addresses(1)}}
		}, [][2]int64{{1, 0}, {0, 1}}},
		"the host network": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, [][2]int64{{0, 0}}},
		"the label":        {func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.NoRequestLabel: "true"} }, [][2]int64{{0, 0}}},
		"the label, false": {func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.NoRequestLabel: "false"} }, [][2]int64{{1, 1}}},
		"a static pod's mirror": {func(p *corev1.Pod) {
			p.Annotations, p.Spec.NodeName = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}, "n1"
		}, [][2]int64{{0, 0}}},
		"of a DaemonSet": {func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "u", Controller: ptr.To(true)}}
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n1"}}}}},
			}}}
		}, [][2]int64{{1, 1}}},
		"bound by hand": {func(p *corev1.Pod) { p.Spec.NodeName = "n1" }, [][2]int64{{1, 1}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := create(test.mod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, requestsOf(t, p)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if cpu := p.Spec.Containers[0].Resources.Requests.Cpu(); name == "requests of its own" && cpu.Value() != 1 {
				t.Errorf("the request for CPU is gone: %v", p.Spec.Containers[0].Resources)
			}
		})
	}
}
