// Package v1alpha1 holds the API of cilium-pool.io/v1alpha1: PodIPPool, what a
// network team writes, PodIPBlock, the ledger of who holds which block, and
// PodIPPoolHistory, the past of a pool.
// It holds types and names only; pkg/crd turns them into plain values.
//
// +kubebuilder:object:generate=true
// +groupName=cilium-pool.io
package v1alpha1
