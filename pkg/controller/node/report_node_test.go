package node

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// hasShortage fails the test unless the Node's condition has this reason; it is True unless
// addresses suffice.
func (b *bed) hasShortage(reason string) {
	b.T.Helper()
	want := corev1.ConditionTrue
	if reason == reasonEnough {
		want = corev1.ConditionFalse
	}
	conditions := b.node().Status.Conditions
	if len(conditions) != 1 || conditions[0].Type != v1alpha1.NodeAddressShortage || conditions[0].Status != want || conditions[0].Reason != reason {
		b.T.Errorf("conditions of the Node are %v, want %s %s with reason %s", conditions, v1alpha1.NodeAddressShortage, want, reason)
	}
}

// reportsShortage fails the test unless the last event about a shortage contains this.
func (b *bed) reportsShortage(want string) {
	b.T.Helper()
	last := ""
	for _, e := range b.EventsOf(event.ReasonPodAddressShortage) {
		last = e
	}
	if !strings.Contains(last, want) {
		b.T.Errorf("the last event about a shortage is %q, want %q in it", last, want)
	}
}

// The condition of a Node is written only when it changes.
func TestNodeConditionAtRest(t *testing.T) {
	b := newBed(t, fixtures.Node())
	b.r.Reporter.NodeCondition = true
	lack := &shortage{unmet: true, reason: v1alpha1.NodePoolsExhausted, message: "x"}
	more := &shortage{unmet: true, reason: v1alpha1.NodePoolsExhausted, message: "y"}
	for i, step := range []struct {
		lack *shortage
		want int
	}{{nil, 0}, {lack, 1}, {lack, 0}, {more, 1}, {more, 0}, {nil, 1}, {nil, 0}} {
		b.Calls = nil
		if err := b.r.Reporter.setNodeCondition(t.Context(), b.node(), step.lack); err != nil {
			t.Fatal(err)
		}
		if len(b.Calls) != step.want {
			t.Errorf("step %d: writes %v, want %d", i, b.Calls, step.want)
		}
	}
}

// A taint that another client adds in the meantime is not lost.
func TestNodeTaintIsWrittenOnWhatWasSeen(t *testing.T) {
	b := newBed(t, fixtures.Node())
	seen := b.node()
	others := b.node()
	others.Spec.Taints = []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoExecute}}
	b.must(b.API.Update(t.Context(), others))
	if err := b.r.Reporter.setNodeTaint(t.Context(), seen, "short", true); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if err := b.r.Reporter.setNodeTaint(t.Context(), b.node(), "short", true); err != nil {
		t.Fatal(err)
	}
	if taints := b.node().Spec.Taints; len(taints) != 2 {
		t.Errorf("taints are %v", taints)
	}
}
