package controller

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// A pod's own annotations go before those of its namespace, and those of a family
// before those of both, as Cilium has it.
func TestAsked(t *testing.T) {
	tests := map[string]struct {
		pod, namespace map[string]string
		want           [2]string
	}{
		"nothing":           {},
		"both families":     {pod: map[string]string{poolAnnotation: "blue"}, want: [2]string{"blue", "blue"}},
		"one family":        {pod: map[string]string{v6PoolAnnotation: "blue"}, want: [2]string{ipalloc.IPv6: "blue"}},
		"its own first":     {pod: map[string]string{poolAnnotation: "blue", v4PoolAnnotation: "green"}, want: [2]string{"green", "blue"}},
		"the namespace":     {namespace: map[string]string{poolAnnotation: "blue"}, want: [2]string{"blue", "blue"}},
		"the pod first":     {pod: map[string]string{v4PoolAnnotation: "green"}, namespace: map[string]string{poolAnnotation: "blue"}, want: [2]string{"green", "blue"}},
		"back to default":   {pod: map[string]string{poolAnnotation: "default"}, namespace: map[string]string{poolAnnotation: "blue"}},
		"other annotations": {pod: map[string]string{"ipam.cilium.io/require-pool-match": "true"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods := NewPods()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "a", Annotations: test.pod}}
			pod.Spec.NodeName = "n"
			pods.Set(readPod(pod), noon())
			if news := pods.SetNamespace("team", test.namespace); news != (test.namespace != nil) {
				t.Errorf("the namespace is news: %t", news)
			}
			if pods.SetNamespace("team", test.namespace) {
				t.Error("the same again is news")
			}
			asked := pods.Asked("n")
			for _, f := range ipalloc.Families() {
				if got := asked.pool("team/a", f); got != test.want[f] {
					t.Errorf("%s: asks for %q, want %q", f, got, test.want[f])
				}
			}
			if again := readPod(pod); pods.Set(again, noon()) {
				t.Error("the same pod again is news")
			}
			pod.Annotations = map[string]string{poolAnnotation: "red"}
			if !pods.Set(readPod(pod), noon()) || pods.Asked("n").pool("team/a", ipalloc.IPv4) != "red" {
				t.Error("another annotation is no news")
			}
			pods.SetNamespace("team", nil)
			if len(pods.namespaces) > 0 {
				t.Errorf("namespaces are kept that ask for nothing: %v", pods.namespaces)
			}
		})
	}
}

// In multi-pool mode alone namespaces are watched, and one that asks for another
// pool than before has all nodes looked at.
func TestNamespacesAreWatched(t *testing.T) {
	for _, mode := range ciliumnode.Modes() {
		f := NewFeed()
		f.Mode = mode
		watched := false
		for _, w := range f.Watches(logr.Discard()) {
			_, isNamespace := w.Object.(*corev1.Namespace)
			watched = watched || isNamespace
		}
		if watched != (mode == ciliumnode.MultiPool) {
			t.Errorf("%s mode: namespaces are watched: %t", mode, watched)
		}
	}
}

func TestStrippedNamespace(t *testing.T) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: types.UID("u"), Labels: map[string]string{"a": "b"},
		Annotations: map[string]string{"a": "b", poolAnnotation: "blue", v4PoolAnnotation: "green", v6PoolAnnotation: "red"}}}
	before := *askedPools(n.Annotations)
	if _, err := stripNamespace(n); err != nil {
		t.Fatal(err)
	}
	if *askedPools(n.Annotations) != before || len(n.Annotations) != 3 || len(n.Labels) > 0 {
		t.Errorf("kept are %v %v", n.Labels, n.Annotations)
	}
}
