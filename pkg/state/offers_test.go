package state

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

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
