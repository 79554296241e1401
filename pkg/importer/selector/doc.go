// Package selector turns selectors of nodes, as Calico's IPPools and
// Kubernetes' NodeSelectors write them, into the one Kubernetes label selector
// that a PodIPPool has. It does so exactly, for every set of labels that a Node
// can have, or refuses with the reason.
//
// An expression becomes a union of terms, each a conjunction with one constraint per label. The
// narrowest conjunction around all terms is then the only candidate; it is taken if the terms cover
// all of it.
package selector
