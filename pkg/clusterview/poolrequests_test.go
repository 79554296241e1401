package clusterview

import (
	"testing"
	"time"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	slimmetav1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A pod counts for the same Cilium pool as in the operator.
func TestPodsCountForTheirCiliumPool(t *testing.T) {
	type labelled = map[string]string
	picks := &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "blue"}, Spec: ciliumv2alpha1.IPPoolSpec{
		IPv4:        &ciliumv2alpha1.IPv4PoolSpec{MaskSize: 28},
		PodSelector: &slimmetav1.LabelSelector{MatchLabels: labelled{"app": "web"}},
	}}
	none := &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: ciliumv2alpha1.IPPoolSpec{IPv4: picks.Spec.IPv4}}
	asks := labelled{"ipam.cilium.io/ip-pool": "blue"}
	tests := map[string]struct {
		pod       metav1.ObjectMeta
		namespace metav1.ObjectMeta
		blue      int
	}{
		"by nothing":               {},
		"by its annotation":        {pod: metav1.ObjectMeta{Annotations: asks}, blue: 1},
		"by that of its namespace": {namespace: metav1.ObjectMeta{Annotations: asks}, blue: 1},
		"by its labels":            {pod: metav1.ObjectMeta{Labels: labelled{"app": "web"}}, blue: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.namespace.Name, test.pod.Namespace, test.pod.Name = "team", "team", "a"
			pool := v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "blues", Generation: 1}, Spec: v1alpha1.PodIPPoolSpec{
				CiliumPoolName: "blue", IPv4: &v1alpha1.IPv4Ranges{BlockSize: 28, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/24"}}},
			}}
			c := New(&clusterread.Objects{
				Time: time.Unix(0, 0), Mode: ciliumnode.MultiPool, Pools: []v1alpha1.PodIPPool{pool},
				Nodes:       []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}},
				Agents:      []corev1.Pod{*fixtures.AgentPod("agent", "c", true)},
				Pods:        []corev1.Pod{{ObjectMeta: test.pod, Spec: corev1.PodSpec{NodeName: "n"}}},
				Namespaces:  []corev1.Namespace{{ObjectMeta: test.namespace}},
				CiliumPools: []*ciliumpool.View{ciliumpool.Read(none), ciliumpool.Read(picks)},
			}, clusterread.Operator{Settings: config.DefaultSettings()})
			blue := 0
			for _, d := range c.Decide("n") {
				if d.Family == ipalloc.IPv4 && d.CiliumPool == "blue" {
					blue = len(d.State.Pods)
				}
			}
			if blue != test.blue {
				t.Errorf("%d pods count for pool blue, want %d", blue, test.blue)
			}
		})
	}
}
