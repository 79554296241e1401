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
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
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

// checkOwners reports pods that may start with another address than the one that is kept for them.
func checkOwners(x *index, found *findings) {
	if !x.cluster.Defaults.CiliumPools || !x.cluster.Ledger.Pins.HasOwners() {
		return
	}
	optional := map[string][]string{} // pods by pool
	for _, pod := range x.cluster.Pods.OfOwners(x.cluster.CiliumPools.Picking()) {
		if pod.Strict || pod.NamesPool() {
			continue
		}
		for _, pool := range x.poolsKeepingFor(pod.Owners) {
			optional[pool] = append(optional[pool], pod.Name)
		}
	}
	for pool, pods := range optional {
		namespace, name, _ := strings.Cut(pods[0], "/")
		found.add(KeptAddressOptional, Finding{Object: poolObject(pool), Others: []Object{{Kind: "Pod", Namespace: namespace, Name: name}}},
			"%s may start with another address than the kept one: neither pod nor namespace has the annotation %s", suggest.Few(pods), state.RequireAnnotation)
	}
}

// poolsKeepingFor returns the PodIPPools with an address that a pin keeps for one of the owners, each once.
func (x *index) poolsKeepingFor(owners []string) []string {
	var names []string
	for _, owner := range owners {
		for _, cidr := range x.cluster.Ledger.Pins.Of(owner) {
			if pool := x.cluster.Pools.Having(cidr); pool != nil {
				names = append(names, pool.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
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
