package budgets

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podOf is a pod of an app with conditions that are True.
func podOf(app, name string, conditions ...corev1.PodConditionType) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}}}
	for _, c := range conditions {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue})
	}
	return p
}

func leaving(p *corev1.Pod) *corev1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return p
}

func TestJudge(t *testing.T) {
	const ready, target = corev1.PodReady, corev1.DisruptionTarget
	tests := map[string]struct {
		more   func(see func(*corev1.Pod, bool))
		broken int
		lowest int
	}{
		"nothing happens": {func(func(*corev1.Pod, bool)) {}, 0, 3},
		"one is evicted and comes back": {func(see func(*corev1.Pod, bool)) {
			see(podOf("store", "a", ready, target), false)
			see(leaving(podOf("store", "a", ready, target)), false)
			see(podOf("store", "a", target), true)
			see(podOf("store", "a2", ready), false)
		}, 0, 2},
		"two are evicted at once": {func(see func(*corev1.Pod, bool)) {
			see(leaving(podOf("store", "a", ready, target)), false)
			see(leaving(podOf("store", "b", ready, target)), false)
		}, 1, 1},
		"one fails while another leaves": {func(see func(*corev1.Pod, bool)) {
			see(leaving(podOf("store", "a", ready, target)), false)
			see(podOf("store", "b"), false)
		}, 1, 1},
		"one is deleted without an eviction": {func(see func(*corev1.Pod, bool)) {
			see(leaving(podOf("store", "a", ready)), false)
			see(podOf("store", "a"), true)
		}, 1, 2},
		"pods without a budget go": {func(see func(*corev1.Pod, bool)) {
			for _, name := range []string{"x", "y", "z"} {
				see(podOf("crowd", name, ready), false)
				see(leaving(podOf("crowd", name, ready, target)), false)
			}
		}, 0, 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := New(map[string]int{"store": 2})
			for _, name := range []string{"a", "b", "c"} {
				b.See(podOf("store", name), false)
				b.See(podOf("store", name, ready), false)
			}
			if !b.Begun() {
				t.Fatal("has not begun")
			}
			b.Lowest["store"] = len(b.ready["store"])
			test.more(b.See)
			if len(b.Broken) != test.broken || b.Lowest["store"] != test.lowest {
				t.Errorf("broken %q, lowest %d; want %d, %d", b.Broken, b.Lowest["store"], test.broken, test.lowest)
			}
		})
	}
}
