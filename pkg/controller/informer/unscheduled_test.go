package informer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// unscheduled returns a pod that no node has addresses for.
func unscheduled(name, uid string) *corev1.Pod {
	p := fixtures.Pod(name, uid, "")
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/1 nodes are available: 1 Insufficient cilium-pool.io/ipv4.",
	}}
	return p
}

// Pods without addresses from the scheduler are assigned soon. Other changes follow later while
// some wait, and not at all otherwise.
func TestUnscheduledPodsAreQueued(t *testing.T) {
	feed, _ := podBed()
	var after []string
	feed.Unscheduled, feed.queues[UnscheduledQueue] = scheduling.NewUnscheduled(), delays{after: &after}
	waiting, bound := feed.unscheduledStore(), feed.podStore()
	free := func() error { feed.SpaceChanged(fixtures.Prefixes("10.0.0.0/30"), nil, nil, nil); return nil }
	steps := []struct {
		what string
		do   func() error
		want []string
	}{
		{"the scheduler has yet to look", func() error { return waiting.Add(fixtures.Pod("a", "1", "")) }, nil},
		{"a node changes", func() error { feed.QueueNode("n"); return nil }, nil},
		{"space is freed", free, nil},
		{"a pod waits", func() error { return waiting.Update(unscheduled("a", "1")) }, []string{"pods 50ms"}},
		{"it waits still", func() error { return waiting.Update(unscheduled("a", "1")) }, nil},
		{"a node changes meanwhile", func() error { feed.QueueNode("n"); return nil }, []string{"pods 500ms"}},
		{"a Service is deleted meanwhile", free, []string{"pods 500ms"}},
		{"it is bound", func() error { return bound.Add(fixtures.Pod("a", "1", "n")) }, []string{"pods 500ms"}},
		{"the other watch shows that later", func() error { return waiting.Delete(unscheduled("a", "1")) }, nil},
		{"two wait", func() error { return waiting.Replace([]any{unscheduled("b", "2"), unscheduled("c", "3")}, "1") }, []string{"pods 50ms", "pods 50ms"}},
		{"one is gone from the next list", func() error { return waiting.Replace([]any{unscheduled("c", "3")}, "2") }, []string{"pods 500ms"}},
	}
	for _, step := range steps {
		after = nil
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if diff := cmp.Diff(step.want, after); diff != "" {
			t.Errorf("%s: queued (-want +got):\n%s", step.what, diff)
		}
	}
}
