package crd

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// NewHistory returns an empty history of a pool, owned by the pool.
func NewHistory(pool *v1alpha1.PodIPPool) *v1alpha1.PodIPPoolHistory {
	return &v1alpha1.PodIPPoolHistory{ObjectMeta: metav1.ObjectMeta{
		Name: pool.Name, OwnerReferences: []metav1.OwnerReference{ownerOf(pool)},
	}}
}

// IsHistoryOf reports whether a history belongs to a pool, and not to an earlier one of
// the same name that garbage collection has yet to delete.
func IsHistoryOf(h *v1alpha1.PodIPPoolHistory, pool *v1alpha1.PodIPPool) bool {
	return h.Name == pool.Name && slices.ContainsFunc(h.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == ownerOf(pool).Kind && o.UID == pool.UID
	})
}

// ownerOf does not block the pool's deletion, which would require permission on its
// finalizers in clusters that enforce OwnerReferencesPermissionEnforcement.
func ownerOf(pool *v1alpha1.PodIPPool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodIPPool", Name: pool.Name, UID: pool.UID}
}
