// Package finalizer has patches that add and remove the operator's finalizer. Neither
// touches another field, so managed fields of users stay theirs, and both are
// conditional on the version of the object.
package finalizer

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// Add is the patch that adds the finalizer.
func Add(obj client.Object) client.Patch {
	return finalizersPatch(obj, append(slices.Clone(obj.GetFinalizers()), v1alpha1.Finalizer))
}

// Drop is the patch that removes the finalizer.
func Drop(obj client.Object) client.Patch {
	return finalizersPatch(obj, slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == v1alpha1.Finalizer }))
}

func finalizersPatch(obj client.Object, finalizers []string) client.Patch {
	var patch struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
			Finalizers      []string  `json:"finalizers"`
		} `json:"metadata"`
	}
	patch.Metadata.UID, patch.Metadata.ResourceVersion, patch.Metadata.Finalizers = obj.GetUID(), obj.GetResourceVersion(), finalizers
	body, err := json.Marshal(patch)
	if err != nil {
		panic(err) // only strings
	}
	return client.RawPatch(types.MergePatchType, body)
}
