package controller

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// fieldOwner is the operator's name in metadata.managedFields; the API server takes the same
	// from its User-Agent.
	fieldOwner = "cilium-pool-operator"
	// helmFieldOwner is that of Helm (v4.3.1, cmd/helm/helm.go).
	helmFieldOwner = "helm"
)

// handedOver returns an object's field managers with Helm in place of the operator that created it,
// except for the finalizer. Helm 4 uses server-side apply, which rejects a changed value while
// another manager owns the field; and if Helm owned the finalizer, its next apply would remove it.
// The second result is false if the operator does not own the spec: there is no field to hand over.
func handedOver(entries []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, bool) {
	for i, e := range entries {
		if e.Manager != fieldOwner || e.Operation != metav1.ManagedFieldsOperationUpdate || e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil || fields["f:spec"] == nil {
			continue
		}
		metadata, _ := fields["f:metadata"].(map[string]any)
		finalizers := metadata["f:finalizers"]
		delete(metadata, "f:finalizers")
		helm, ours := e, e
		helm.Manager, helm.Operation, helm.FieldsV1 = helmFieldOwner, metav1.ManagedFieldsOperationApply, fieldsOf(fields)
		ours.FieldsV1 = fieldsOf(map[string]any{"f:metadata": map[string]any{"f:finalizers": finalizers}})
		out := append([]metav1.ManagedFieldsEntry{helm}, entries[:i]...)
		if finalizers != nil {
			out = append(out, ours)
		}
		return append(out, entries[i+1:]...), true
	}
	return entries, false
}

func fieldsOf(fields map[string]any) *metav1.FieldsV1 {
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err) // it was valid JSON
	}
	out := &metav1.FieldsV1{}
	out.SetRawBytes(raw)
	return out
}
