package crd

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Selects reports whether the pool serves a node with these labels.
func (p *Pool) Selects(nodeLabels labels.Set) bool {
	return !p.Inactive && p.Selector.Matches(nodeLabels)
}

// MayRule reports whether the pool rules nodes that other pools could serve too: it assigns blocks
// of family f, or it is paused. A pool does not if it is invalid, if all its CIDRs belong to other
// pools, or if all its CIDRs drain.
func (p *Pool) MayRule(f ipalloc.Family) bool {
	_, ok := p.Cut(f)
	return ok || p.Paused
}

// ForFamily returns the ranked pools that have CIDRs of family f for one Cilium pool ("": the
// default one), best first. The first rules the node. A pool that does not serve follows the
// serving ones: its own nodes would only wait.
func ForFamily(ranked []*Pool, f ipalloc.Family, ciliumPool string) []*Pool {
	var serving, idle []*Pool
	for _, p := range ranked {
		if _, ok := p.Ranges(f); !ok || p.CiliumPool != ciliumPool {
			continue
		}
		if p.MayRule(f) {
			serving = append(serving, p)
		} else {
			idle = append(idle, p)
		}
	}
	return append(serving, idle...)
}

// RulingIsFinal reports whether no label that a node may still get changes its ruling pool, in any
// family and Cilium pool.
func RulingIsFinal(pools []*Pool, nodeLabels labels.Set) bool {
	type share struct {
		ciliumPool string
		family     ipalloc.Family
	}
	ruled := map[share]bool{}
	for _, p := range slices.SortedFunc(slices.Values(pools), ComparePools) {
		for _, f := range ipalloc.Families() {
			if key := (share{p.CiliumPool, f}); !p.Deleting && !p.Inactive && p.MayRule(f) && !ruled[key] {
				matches, final := p.matchesFinally(nodeLabels)
				if !final {
					return false
				}
				ruled[key] = matches
			}
		}
	}
	return true
}

// matchesFinally returns whether the selector matches, and whether labels that a Node gets
// after its registration cannot change that: kubelets register Nodes with these three.
func (p *Pool) matchesFinally(nodeLabels labels.Set) (matches, final bool) {
	requirements, selectable := p.Selector.Requirements()
	if !selectable {
		return false, true
	}
	final = true
	for _, r := range requirements {
		switch r.Key() {
		case corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelHostname:
			if !r.Matches(nodeLabels) {
				return false, true
			}
		default:
			final = false
		}
	}
	return final, final
}

// Rank returns the pools that serve a node with these labels, best first. Pools that are being deleted are left out,
// paused ones are not.
func Rank(pools []*Pool, nodeLabels labels.Set) []*Pool {
	var ranked []*Pool
	for _, p := range pools {
		if !p.Deleting && p.Selects(nodeLabels) {
			ranked = append(ranked, p)
		}
	}
	slices.SortFunc(ranked, ComparePools)
	return ranked
}

// ComparePools orders pools, best first: highest priority, then name.
func ComparePools(a, b *Pool) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
}
