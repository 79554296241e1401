// Package common is shared by the controllers: their writes and refusals, their metrics, and their
// retries.
package common

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// Refusal is the error of a write that the API server refuses until a role, an admission
// policy, a webhook or a schema changes.
type Refusal struct {
	// Kind and Name are the object's. Kind and Write are the labels of the metric
	// cilium_pool_api_writes_total.
	Kind, Name, Write string
	// Err is the API server's answer.
	Err error
}

func (e *Refusal) Error() string { return e.Err.Error() }

// Unwrap returns the API server's answer.
func (e *Refusal) Unwrap() error { return e.Err }

// RefusalOf returns err, as a *Refusal if the API server refuses the write.
func RefusalOf(kind, name, write string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return &Refusal{Kind: kind, Name: name, Write: write, Err: err}
	}
	return err
}

// RefusalIn returns the first refusal in err; nil: there is none.
func RefusalIn(err error) *Refusal {
	var refused *Refusal
	errors.As(err, &refused)
	return refused
}

// Note names the refused write, quotes the API server and advises.
func (e *Refusal) Note() string {
	return fmt.Sprintf("the API server refuses the write %q of %s %s: %s. %s. The operator tries again by itself",
		e.Write, e.Kind, e.Name, termsafe.Line(e.answer()), e.advice())
}

// answer is the API server's message, without additions of the operator's functions.
func (e *Refusal) answer() string {
	var status apierrors.APIStatus
	if errors.As(e.Err, &status) {
		return status.Status().Message
	}
	return e.Err.Error()
}

func (e *Refusal) advice() string {
	switch text := e.answer(); {
	case strings.Contains(text, "denied the request"), strings.Contains(text, "denied request"):
		return "Let the operator's ServiceAccount pass the admission policy or webhook that is named there"
	case apierrors.IsForbidden(e.Err):
		return "Grant the operator this right: upgrade its chart, with rbac.create=true"
	case apierrors.IsRequestEntityTooLargeError(e.Err):
		return "Take what the operator did not write out of the object, or lower --max-addresses-per-node"
	}
	return "Correct the field that is named there, or install the CRDs of this version of the operator and of Cilium"
}

// Wrote counts a write of an object and returns its error, as a *Refusal if the API
// server refuses it.
func (m *Shared) Wrote(kind, name, write string, err error) error {
	result := "ok"
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		result = "conflict"
	case err != nil:
		result = "error"
	}
	m.Writes.WithLabelValues(kind, write, result).Inc()
	return RefusalOf(kind, name, write, err)
}

// AddFinalizer is the patch that adds the operator's finalizer. It touches no other field, so
// managed fields of users stay theirs, and is conditional on the version of the object.
func AddFinalizer(obj client.Object) client.Patch {
	return finalizersPatch(obj, append(slices.Clone(obj.GetFinalizers()), v1alpha1.Finalizer))
}

// DropFinalizer is the patch that removes it, likewise.
func DropFinalizer(obj client.Object) client.Patch {
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
