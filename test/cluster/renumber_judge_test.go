//go:build linux

package main

import (
	"net/netip"
	"slices"
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

func TestBudgets(t *testing.T) {
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
			b := newBudgets(map[string]int{"store": 2})
			for _, name := range []string{"a", "b", "c"} {
				b.see(podOf("store", name), false)
				b.see(podOf("store", name, ready), false)
			}
			if !b.begun() {
				t.Fatal("has not begun")
			}
			b.lowest["store"] = len(b.ready["store"])
			test.more(b.see)
			if len(b.broken) != test.broken || b.lowest["store"] != test.lowest {
				t.Errorf("broken %q, lowest %d; want %d, %d", b.broken, b.lowest["store"], test.broken, test.lowest)
			}
		})
	}
}

func TestLostByStaying(t *testing.T) {
	flows := []flow{{from: "a", to: "b", fromID: "1", toID: "2", address: "10.0.0.2"}, {from: "b", to: "c", fromID: "2", toID: "3", address: "10.0.0.3"}}
	results := map[string]map[string]losses{
		"a": {"10.0.0.2": {Sent: 100}},
		"b": {"10.0.0.3": {Sent: 90, Lost: 7, LongestGapMs: 350}},
	}
	all := map[string]types.UID{"a": "1", "b": "2", "c": "3"}
	if sum, judged := lostByStaying(flows, all, results); sum.Sent != 190 || sum.Lost != 7 || sum.LongestGapMs != 350 || judged != 2 {
		t.Errorf("a planted loss: %+v of %d flows", sum, judged)
	}
	moved := map[string]types.UID{"a": "1", "b": "2", "c": "4"} // c is another pod now
	if sum, judged := lostByStaying(flows, moved, results); sum.Sent != 100 || sum.Lost != 0 || judged != 1 {
		t.Errorf("a pod that was evicted: %+v of %d flows", sum, judged)
	}
}

// Each way to fail is a failure.
func TestRenumberedFails(t *testing.T) {
	good := renumbered{flows: 2, judged: 2, pings: losses{Sent: 100}}
	if !good.passed() {
		t.Error("nothing is wrong, and it fails")
	}
	for name, plant := range map[string]func(*renumbered){
		"a ping is lost":              func(r *renumbered) { r.pings.Lost = 1 },
		"nothing was sent":            func(r *renumbered) { r.pings.Sent = 0 },
		"a pod that was to stay went": func(r *renumbered) { r.judged = 1 },
		"nothing was to stay":         func(r *renumbered) { r.flows, r.judged = 0, 0 },
		"a budget is broken":          func(r *renumbered) { r.broken = []string{"1 pod of store is Ready"} },
		"a route is left":             func(r *renumbered) { r.left = []string{"n1 routes 100.162.224.32/27"} },
	} {
		r := good
		if plant(&r); r.passed() {
			t.Errorf("%s, and it passes", name)
		}
	}
}

func TestNamed(t *testing.T) {
	const text = `{"pool":{"100.162.224.33":{},"100.162.223.255":{}},"podCIDRs":["100.162.230.0/27","100.160.0.0/12"]}
100.162.224.32/27 via 192.0.2.11 dev eth0`
	got := named(text, netip.MustParsePrefix("100.162.224.0/19"))
	if want := []string{"100.162.224.32/27", "100.162.224.33", "100.162.230.0/27"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
