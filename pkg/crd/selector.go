package crd

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// CountSelected returns the number of Nodes that the pool's selector picks.
func (p *Pool) CountSelected(nodes []corev1.Node) int {
	selected := 0
	for i := range nodes {
		if p.Selector.Matches(labels.Set(nodes[i].Labels)) {
			selected++
		}
	}
	return selected
}

// SelectsNone describes why the pool's selector picks none of the Nodes, with the labels that come close, as in
// "no Node has zone=bejing. Did you mean beijing?".
func (p *Pool) SelectsNone(nodes []corev1.Node) string {
	requirements, _ := p.Selector.Requirements()
	if len(nodes) == 0 {
		return "the cluster has none"
	}
	var words []string
	for _, r := range requirements {
		words = append(words, r.String())
		matches := func(node corev1.Node) bool { return r.Matches(labels.Set(node.Labels)) }
		if !slices.ContainsFunc(nodes, matches) {
			return unmet(r, nodes)
		}
	}
	return fmt.Sprintf("some have %s, and none has all of it", suggest.FirstBy(" and some ", 5, words))
}

// unmet describes a requirement that no Node meets.
func unmet(r labels.Requirement, nodes []corev1.Node) string {
	keys := map[string]bool{}
	values := map[string]bool{}
	for i := range nodes {
		for key, value := range nodes[i].Labels {
			keys[key] = true
			if key == r.Key() {
				values[value] = true
			}
		}
	}
	if len(values) == 0 {
		return fmt.Sprintf("no Node has the label %s", r.Key()) + suggest.DidYouMean(r.Key(), slices.Sorted(maps.Keys(keys)))
	}
	found := slices.Sorted(maps.Keys(values))
	for _, wanted := range slices.Sorted(maps.Keys(r.Values())) {
		if near := suggest.DidYouMean(wanted, found); near != "" {
			return fmt.Sprintf("no Node has %s", r.String()) + near
		}
	}
	return fmt.Sprintf("no Node has %s; Nodes have %s", r.String(), suggest.Few(found))
}
