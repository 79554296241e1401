package crd_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

func TestSelectsNone(t *testing.T) {
	nodes := []corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"topology.kubernetes.io/zone": "beijing", "rack": "r1"}}},
		{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"topology.kubernetes.io/zone": "shanghai", "rack": "r2"}}},
	}
	tests := map[string]struct {
		selector string
		nodes    []corev1.Node
		want     string
	}{
		"a value misspelt":          {"topology.kubernetes.io/zone=bejing", nodes, "no Node has topology.kubernetes.io/zone=bejing. Did you mean beijing?"},
		"one value of several":      {"topology.kubernetes.io/zone in (bejing,oslo)", nodes, "no Node has topology.kubernetes.io/zone in (bejing,oslo). Did you mean beijing?"},
		"a value like none":         {"topology.kubernetes.io/zone=oslo", nodes, "no Node has topology.kubernetes.io/zone=oslo; Nodes have beijing, shanghai"},
		"a key misspelt":            {"topology.kubernetes.io/zon=beijing", nodes, "no Node has the label topology.kubernetes.io/zon. Did you mean topology.kubernetes.io/zone?"},
		"a key like none":           {"team", nodes, "no Node has the label team"},
		"only the second misspelt":  {"rack=r1,topology.kubernetes.io/zone=bejing", nodes, "no Node has topology.kubernetes.io/zone=bejing. Did you mean beijing?"},
		"a label that all have":     {"!rack", nodes, "no Node has !rack; Nodes have r1, r2"},
		"labels of different Nodes": {"rack=r1,topology.kubernetes.io/zone=shanghai", nodes, "some have rack=r1 and some topology.kubernetes.io/zone=shanghai, and none has all of it"},
		"no Nodes":                  {"rack=r1", nil, "the cluster has none"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			selector, err := labels.Parse(test.selector)
			if err != nil {
				t.Fatal(err)
			}
			pool := &crd.Pool{Selector: selector}
			if got := pool.SelectsNone(test.nodes); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := pool.CountSelected(test.nodes); got != 0 {
				t.Errorf("selects %d Nodes", got)
			}
		})
	}
}
