package crd

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeRestriction decides which labels a kubelet may set on its own Node.
func TestKubeletLabels(t *testing.T) {
	for key, may := range map[string]bool{
		"zone":                                     true,
		"example.org/zone":                         true,
		"example.org.kubernetes.io.org/zone":       true,
		"mykubernetes.io/zone":                     true,
		"kubernetes.io/hostname":                   true,
		"kubernetes.io/os":                         true,
		"kubernetes.io/arch":                       true,
		"beta.kubernetes.io/instance-type":         true,
		"node.kubernetes.io/instance-type":         true,
		"node.kubernetes.io/anything":              true,
		"a.kubelet.kubernetes.io/anything":         true,
		"topology.kubernetes.io/zone":              true,
		"topology.kubernetes.io/region":            true,
		"failure-domain.beta.kubernetes.io/zone":   true,
		"topology.kubernetes.io/rack":              false,
		"kubernetes.io/rack":                       false,
		"k8s.io/rack":                              false,
		"example.k8s.io/rack":                      false,
		"node-role.kubernetes.io/control-plane":    false,
		"node-restriction.kubernetes.io/zone":      false,
		"zone.node-restriction.kubernetes.io/zone": false,
	} {
		if got := kubeletMaySet(key); got != may {
			t.Errorf("%s: a kubelet may set it %t, want %t", key, got, may)
		}
	}
	selectors := map[string]struct {
		selector *metav1.LabelSelector
		want     []string
	}{
		"all nodes":      {nil, nil},
		"also all nodes": {&metav1.LabelSelector{}, nil},
		"both kinds of terms, each key once": {&metav1.LabelSelector{
			MatchLabels: map[string]string{"zone": "a", "node-restriction.kubernetes.io/zone": "a"},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "zone", Operator: metav1.LabelSelectorOpExists}, {Key: "kubernetes.io/os", Operator: metav1.LabelSelectorOpDoesNotExist},
			},
		}, []string{"kubernetes.io/os", "zone"}},
	}
	for name, test := range selectors {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, KubeletLabels(test.selector)); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}
