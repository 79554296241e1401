package crd

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// Matches reports whether the pool serves a node with these labels.
func (p *Pool) Matches(nodeLabels labels.Set) bool {
	return !p.Idle && p.Selector.Matches(nodeLabels)
}

// Rank returns the pools that serve a node with these labels, best first:
// highest priority, then name. Pools that are being deleted are left out,
// paused ones are not.
func Rank(pools []*Pool, nodeLabels labels.Set) []*Pool {
	var ranked []*Pool
	for _, p := range pools {
		if !p.Deleting && p.Matches(nodeLabels) {
			ranked = append(ranked, p)
		}
	}
	slices.SortFunc(ranked, func(a, b *Pool) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	return ranked
}
