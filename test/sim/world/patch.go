package world

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patch applies a merge patch (RFC 7386), or for a Node a strategic merge patch, to an object
// or, with status, to its status.
func (a *API) Patch(k Kind, key string, kind types.PatchType, body []byte, status bool) (client.Object, error) {
	old := a.objects[k][key]
	if old == nil {
		return nil, apierrors.NewNotFound(k.resource(), key)
	}
	doc, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	switch kind {
	case types.MergePatchType:
		doc, err = mergePatch(doc, body)
	case types.StrategicMergePatchType:
		doc, err = strategicpatch.StrategicMergePatch(doc, body, corev1.Node{})
	default:
		panic("no such patch here: " + string(kind))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	obj := k.empty()
	if err := json.Unmarshal(doc, obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return a.Update(obj, status)
}

func mergePatch(doc, patch []byte) ([]byte, error) {
	var to, from any
	if err := json.Unmarshal(doc, &to); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(patch, &from); err != nil {
		return nil, err
	}
	return json.Marshal(merge(to, from))
}

func merge(to, from any) any {
	changes, ok := from.(map[string]any)
	if !ok {
		return from
	}
	fields, ok := to.(map[string]any)
	if !ok {
		fields = map[string]any{}
	}
	for name, value := range changes {
		if value == nil {
			delete(fields, name)
		} else {
			fields[name] = merge(fields[name], value)
		}
	}
	return fields
}
