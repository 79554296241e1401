package state

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func sidecar(n int64) corev1.Container {
	c := fixtures.AddressesContainer(n)
	c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	return c
}

func TestAddressRequests(t *testing.T) {
	plain := corev1.Container{Name: "c"}
	tests := map[string]struct {
		spec corev1.PodSpec
		want [2]uint16
	}{
		"none":                    {corev1.PodSpec{Containers: []corev1.Container{plain}}, [2]uint16{}},
		"one":                     {corev1.PodSpec{Containers: []corev1.Container{fixtures.AddressesContainer(1), plain}}, [2]uint16{1, 0}},
		"of several containers":   {corev1.PodSpec{Containers: []corev1.Container{fixtures.AddressesContainer(1), fixtures.AddressesContainer(2)}}, [2]uint16{3, 0}},
		"of an init container":    {corev1.PodSpec{InitContainers: []corev1.Container{fixtures.AddressesContainer(2)}, Containers: []corev1.Container{fixtures.AddressesContainer(1)}}, [2]uint16{2, 0}},
		"of a sidecar":            {corev1.PodSpec{InitContainers: []corev1.Container{sidecar(1)}, Containers: []corev1.Container{fixtures.AddressesContainer(1)}}, [2]uint16{2, 0}},
		"init after a sidecar":    {corev1.PodSpec{InitContainers: []corev1.Container{sidecar(1), fixtures.AddressesContainer(2)}, Containers: []corev1.Container{plain}}, [2]uint16{3, 0}},
		"init before a sidecar":   {corev1.PodSpec{InitContainers: []corev1.Container{fixtures.AddressesContainer(2), sidecar(1)}, Containers: []corev1.Container{plain}}, [2]uint16{2, 0}},
		"beyond all that is sane": {corev1.PodSpec{Containers: []corev1.Container{fixtures.AddressesContainer(1 << 40)}}, [2]uint16{65535, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := AddressRequests(&test.spec); got != test.want {
				t.Errorf("requests %v, want %v", got, test.want)
			}
		})
	}
}

// Of a Node's resources the cache keeps what it offers, and how many pods it admits.
func TestKeepResources(t *testing.T) {
	n := fixtures.Node()
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("250"), v1alpha1.IPv4Resource: resource.MustParse("30")}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"), v1alpha1.IPv6Resource: resource.MustParse("7")}
	capacity, allocatable := KeepResources(&n.Status)
	if diff := cmp.Diff(corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("30")}, capacity); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(n.Status.Allocatable, allocatable); diff != "" {
		t.Errorf("allocatable (-want +got):\n%s", diff)
	}
	if capacity, allocatable = KeepResources(&corev1.NodeStatus{}); capacity != nil || allocatable != nil {
		t.Errorf("of an empty status: %v, %v", capacity, allocatable)
	}
}
