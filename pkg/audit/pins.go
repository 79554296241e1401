package audit

import (
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// checkPins reports pins that cannot be held, and those of a Node that is probably misspelt.
func checkPins(s *clusterread.Objects, found *findings) {
	for i := range s.Pins {
		pin := &s.Pins[i]
		ready := meta.FindStatusCondition(pin.Status.Conditions, v1alpha1.PinReady)
		if ready == nil || ready.Status != metav1.ConditionFalse {
			continue
		}
		meant := ""
		switch ready.Reason {
		case v1alpha1.PinNotClaimed, v1alpha1.PinDraining:
			continue
		case v1alpha1.PinWaitsForNode:
			if meant = meantNode(pin.Spec.NodeName, s.Nodes); meant == "" {
				continue
			}
		}
		found.add(PinNotReady, Finding{Object: Object{Kind: "PodIPPin", Name: pin.Name}}, "%s: %s%s", ready.Reason, ready.Message, meant)
	}
}

// meantNode asks whether another Node is meant by a name that no Node has; "": probably not. Names
// that differ in their numbers alone are those of Nodes to come.
func meantNode(name string, nodes []corev1.Node) string {
	letters := func(name string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return -1
			}
			return r
		}, name)
	}
	var others []string
	for i := range nodes {
		if letters(nodes[i].Name) == letters(name) {
			return ""
		}
		others = append(others, nodes[i].Name)
	}
	slices.Sort(others)
	return suggest.DidYouMean(name, others)
}
