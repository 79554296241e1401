package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func (b *bed) node() *corev1.Node {
	b.t.Helper()
	node := &corev1.Node{}
	if err := b.api.Get(b.t.Context(), types.NamespacedName{Name: "n"}, node); err != nil {
		b.t.Fatal(err)
	}
	return node
}

// hasShortage holds the Node's condition to a reason: True unless addresses suffice.
func (b *bed) hasShortage(reason string) {
	b.t.Helper()
	want := corev1.ConditionTrue
	if reason == reasonEnough {
		want = corev1.ConditionFalse
	}
	conditions := b.node().Status.Conditions
	if len(conditions) != 1 || conditions[0].Type != v1alpha1.NodeAddressShortage || conditions[0].Status != want || conditions[0].Reason != reason {
		b.t.Errorf("conditions of the Node are %v, want %s %s with reason %s", conditions, v1alpha1.NodeAddressShortage, want, reason)
	}
}

// toldShortage holds the last event about a shortage to what it must contain.
func (b *bed) toldShortage(want string) {
	b.t.Helper()
	last, recorder := "", b.r.Events.recorder.(*events.FakeRecorder)
	for len(recorder.Events) > 0 {
		if e := <-recorder.Events; strings.Contains(e, EventAddressShortage) {
			last = e
		}
	}
	if !strings.Contains(last, want) {
		b.t.Errorf("the last event about a shortage is %q, want %q in it", last, want)
	}
}

// The condition of a Node is written when it turns, and no more.
func TestNodeConditionAtRest(t *testing.T) {
	b := newBed(t, fixtures.Node())
	b.r.NodeCondition = true
	lack := &shortage{unmet: true, reason: reasonPoolsExhausted, message: "x"}
	for i, step := range []struct {
		lack *shortage
		want int
	}{{nil, 0}, {lack, 1}, {lack, 0}, {nil, 1}, {nil, 0}} {
		b.calls = nil
		if err := b.r.setNodeCondition(t.Context(), b.node(), step.lack); err != nil {
			t.Fatal(err)
		}
		if len(b.calls) != step.want {
			t.Errorf("step %d: writes %v, want %d", i, b.calls, step.want)
		}
	}
}

// A taint that somebody else sets meanwhile is not lost.
func TestNodeTaintIsWrittenOnWhatWasSeen(t *testing.T) {
	b := newBed(t, fixtures.Node())
	b.r.ShortageTaint = "short"
	seen := b.node()
	others := b.node()
	others.Spec.Taints = []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoExecute}}
	if err := b.api.Update(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	if err := b.r.setNodeTaint(t.Context(), seen, true); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if err := b.r.setNodeTaint(t.Context(), b.node(), true); err != nil {
		t.Fatal(err)
	}
	if taints := b.node().Spec.Taints; len(taints) != 2 {
		t.Errorf("taints are %v", taints)
	}
}
