package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// What the cache keeps of a Node is what is decided on: whether it is paused,
// whether Cilium runs there, which pool it is of, whether pods still come, and
// what it has been told.
func TestStrippedNodeIsDecidedOnAlike(t *testing.T) {
	tests := map[string]func(n *corev1.Node){
		"plain":              func(*corev1.Node) {},
		"paused":             func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true", "a": "b"} },
		"other annotations":  func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} },
		"cordoned":           func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"opted out by taint": func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "no-cilium"}} },
		"opted out by label": func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.OptOutLabel: "true"} },
		"short of addresses": func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready"}, {Type: Shortage}} },
		"labels, and address": func(n *corev1.Node) {
			n.Labels, n.Status.Addresses = map[string]string{"zone": "a"}, []corev1.NodeAddress{{Type: "InternalIP", Address: "192.168.0.1"}}
		},
	}
	r := &Observer{IgnoreTaints: map[string]bool{"no-cilium": true}}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			whole := nodeObject()
			change(whole)
			kept := whole.DeepCopy()
			if _, err := stripNode(kept); err != nil {
				t.Fatal(err)
			}
			if got, want := r.pausedBecause(kept, nil), r.pausedBecause(whole, nil); got != want {
				t.Errorf("paused %q, want %q", got, want)
			}
			if got, want := r.optedOut(kept), r.optedOut(whole); got != want {
				t.Errorf("opted out %t, want %t", got, want)
			}
			var was, is expand.State
			Press(&was, whole, nil, nil)
			Press(&is, kept, nil, nil)
			if was.Cordoned != is.Cordoned {
				t.Errorf("cordoned %t, want %t", is.Cordoned, was.Cordoned)
			}
			if diff := cmp.Diff(shortageOf(whole.Status.Conditions), shortageOf(kept.Status.Conditions)); diff != "" {
				t.Errorf("shortage (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(labels.Set(whole.Labels), labels.Set(kept.Labels)); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(whole.Status.Addresses, kept.Status.Addresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}
