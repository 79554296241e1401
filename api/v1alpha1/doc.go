// Package v1alpha1 holds the API of cilium-pool.io/v1alpha1: PodIPPool, written by a network team,
// and PodIPBlock, the ledger of blocks and their nodes. It holds types and names only; pkg/crd
// turns them into plain values.
//
// +kubebuilder:object:generate=true
// +groupName=cilium-pool.io
package v1alpha1
