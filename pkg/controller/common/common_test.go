package common

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var blocks = schema.GroupResource{Group: "cilium-pool.io", Resource: "podipblocks"}

// webhook is the API server's answer if a webhook denies a request without a code.
func webhook(why string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 400, Message: "admission webhook \"example.org\" denied the request: " + why,
	}}
}

// Only an answer that stays the same until an administrator changes something is a refusal.
func TestOf(t *testing.T) {
	tests := map[string]struct {
		err  error
		want bool
	}{
		"done":                       {nil, false},
		"forbidden":                  {apierrors.NewForbidden(blocks, "b", errors.New("no such right")), true},
		"invalid":                    {apierrors.NewInvalid(schema.GroupKind{Kind: "PodIPBlock"}, "b", nil), true},
		"a webhook says no":          {webhook("no"), true},
		"too large":                  {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true},
		"conflict":                   {apierrors.NewConflict(blocks, "b", errors.New("changed")), false},
		"another writer was first":   {apierrors.NewAlreadyExists(blocks, "b"), false},
		"gone":                       {apierrors.NewNotFound(blocks, "b"), false},
		"timeout":                    {apierrors.NewTimeoutError("slow", 1), false},
		"too many requests":          {apierrors.NewTooManyRequests("slow", 1), false},
		"the API server has a fault": {apierrors.NewInternalError(errors.New("a webhook cannot be reached")), false},
		"no answer":                  {errors.New("connection refused"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := RefusalOf("PodIPBlock", "b", "phase", test.err)
			if !errors.Is(err, test.err) {
				t.Errorf("%v hides %v", err, test.err)
			}
			wrapped := fmt.Errorf("claiming: %w", errors.Join(err, errors.New("and more")))
			if refused := RefusalIn(wrapped); (refused != nil) != test.want || refused != nil && refused.Name != "b" {
				t.Errorf("the refusal is %v, want %t", refused, test.want)
			}
		})
	}
}

func TestNote(t *testing.T) {
	tests := map[string]struct {
		err  error
		want []string
	}{
		"a right is missing": {
			apierrors.NewForbidden(blocks, "b", errors.New(`User "x" cannot patch resource`)),
			[]string{`write "phase" of PodIPBlock b`, "cannot patch resource", "upgrade its chart, with rbac.create=true"},
		},
		"a CRD that is being deleted": {
			apierrors.NewForbidden(blocks, "b", errors.New("create not allowed while custom resource definition is terminating")),
			[]string{"is terminating", "let its installer make it again"},
		},
		"a quota": {apierrors.NewForbidden(blocks, "b", errors.New("exceeded quota: blocks")), []string{"exceeded quota", "Change what forbids it"}},
		"a policy": {
			apierrors.NewForbidden(blocks, "b", errors.New("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not today")),
			[]string{"not today", "ServiceAccount pass the admission policy or webhook"},
		},
		"a webhook": {webhook("not today"), []string{"not today", "ServiceAccount pass the admission policy or webhook"}},
		"its size":  {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), []string{"limit is 3145728", "lower --max-addresses-per-node"}},
		"a schema":  {apierrors.NewInvalid(schema.GroupKind{Kind: "PodIPBlock"}, "b", nil), []string{"is invalid", "Correct the field"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			note := RefusalIn(RefusalOf("PodIPBlock", "b", "phase", test.err)).Note()
			for _, want := range test.want {
				if !strings.Contains(note, want) {
					t.Errorf("%q is not in %q", want, note)
				}
			}
		})
	}
}

// The author of a webhook may write terminal control sequences, and as much text as they like.
func TestNoteIsCleanAndShort(t *testing.T) {
	note := RefusalIn(RefusalOf("PodIPBlock", "b", "phase", webhook("\x1b[2Jgone\r\n\u202eback\x00 \xff"+strings.Repeat("€", 5000)))).Note()
	if len(note) > 1024 || !utf8.ValidString(note) {
		t.Errorf("%d bytes, valid: %t", len(note), utf8.ValidString(note))
	}
	for _, bad := range []string{"\x1b", "\r", "\n", "\u202e", "\x00"} {
		if strings.Contains(note, bad) {
			t.Errorf("%q is in %q", bad, note)
		}
	}
	if !strings.Contains(note, "[2Jgone back") || !strings.HasSuffix(note, "by itself") {
		t.Errorf("the note is %q", note)
	}
}
