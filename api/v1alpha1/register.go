package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "cilium-pool.io", Version: "v1alpha1"}

// AddToScheme makes the types of this package known to scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&PodIPPool{}, &PodIPPoolList{},
		&PodIPBlock{}, &PodIPBlockList{},
		&PodIPPin{}, &PodIPPinList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
