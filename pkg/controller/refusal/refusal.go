// Package refusal tells writes that the API server refuses until a person changes
// something from those that succeed when they are tried again. It reports nothing.
package refusal

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// Error is the error of a write that the API server refuses until a role, an admission
// policy, a webhook or a schema changes.
type Error struct {
	// Kind and Name are the object's. Kind and Write are the labels of the metric
	// cilium_pool_api_writes_total.
	Kind, Name, Write string
	// Err is the API server's answer.
	Err error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the API server's answer.
func (e *Error) Unwrap() error { return e.Err }

// Of returns err, as an *Error if the API server refuses the write.
func Of(kind, name, write string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return &Error{Kind: kind, Name: name, Write: write, Err: err}
	}
	return err
}

// In returns the first refusal in err; nil: there is none.
func In(err error) *Error {
	var refused *Error
	errors.As(err, &refused)
	return refused
}

// Note says which write is refused, quotes the API server and says what to do.
func (e *Error) Note() string {
	return fmt.Sprintf("the API server refuses the write %q of %s %s: %s. %s. The operator tries again by itself",
		e.Write, e.Kind, e.Name, termsafe.Line(e.answer()), e.advice())
}

// answer is the API server's message, without what the operator's functions add.
func (e *Error) answer() string {
	var status apierrors.APIStatus
	if errors.As(e.Err, &status) {
		return status.Status().Message
	}
	return e.Err.Error()
}

func (e *Error) advice() string {
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
