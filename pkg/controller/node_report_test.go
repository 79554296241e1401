package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

func (b *bed) node() *corev1.Node {
	b.t.Helper()
	node := &corev1.Node{}
	if err := b.api.Get(b.t.Context(), types.NamespacedName{Name: "n"}, node); err != nil {
		b.t.Fatal(err)
	}
	return node
}

// The condition of a Node is written when it turns, and no more.
func TestNodeConditionAtRest(t *testing.T) {
	b := newBed(t, nodeObject())
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
	b := newBed(t, nodeObject())
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
