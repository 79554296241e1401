package export

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var start = time.Unix(1_000_000_000, 0)

// leases are the Leases of ten nodes. Their kubelets renew every 10 seconds, one after the other. The clocks of
// some are wrong by hours.
type leases struct{ renewed [10]int }

func (l *leases) update(s *silence, second int, ready corev1.ConditionStatus) []string {
	var nodes []corev1.Node
	var list []coordinationv1.Lease
	for i, at := range l.renewed {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}
		nodes = append(nodes, corev1.Node{ObjectMeta: meta, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}})
		renew := metav1.NewMicroTime(start.Add(time.Duration(at)*time.Second + time.Duration(i%3)*time.Hour))
		list = append(list, coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &renew}})
	}
	nodes = append(nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "without-lease"}})
	return s.look(start.Add(time.Duration(second)*time.Second), nodes, list)
}

func TestSilence(t *testing.T) {
	tests := map[string]struct {
		after  time.Duration
		renews func(node, second int) bool
		want   []string
	}{
		"all alive":  {30 * time.Second, func(_, _ int) bool { return true }, nil},
		"one dies":   {30 * time.Second, func(node, second int) bool { return node != 3 || second < 60 }, []string{"83 n3 silent"}},
		"comes back": {30 * time.Second, func(node, second int) bool { return node != 3 || second < 60 || second > 100 }, []string{"83 n3 silent", "103 n3 heard"}},
		// Two renewals at least.
		"too short": {time.Second, func(node, second int) bool { return node != 3 || second < 60 }, []string{"73 n3 silent"}},
		"half die": {30 * time.Second, func(node, second int) bool { return node%2 == 0 || second < 60 },
			[]string{"81 n1 silent", "83 n3 silent", "85 n5 silent", "87 n7 silent", "89 n9 silent"}},
		"most die": {30 * time.Second, func(node, second int) bool { return node < 4 || second < 60 }, nil},
		// It stays withdrawn while no node is heard.
		"one dies, then the API server": {30 * time.Second, func(node, second int) bool { return second < 100 && (node != 3 || second < 60) }, []string{"83 n3 silent"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, l := &silence{timeout: test.after}, &leases{}
			var got []string
			for second := range 300 {
				for node := range l.renewed {
					if second%10 == node && test.renews(node, second) {
						l.renewed[node] = second
					}
				}
				for _, name := range l.update(s, second, corev1.ConditionTrue) {
					what := "heard"
					if s.is(name) {
						what = "silent"
					}
					got = append(got, fmt.Sprintf("%d %s %s", second, name, what))
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// However long the API server is away, and whenever it comes back, all nodes are alive.
func TestSilenceOfTheAPIServer(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 35 * time.Second} {
		for from := 60; from < 70; from += 3 {
			for away := 0; away < 90; away += 2 {
				s, l := &silence{timeout: after}, &leases{}
				for second := range 250 {
					if second < from || second >= from+away {
						for node := range l.renewed {
							if second%10 == node {
								l.renewed[node] = second
							}
						}
					}
					if changed := l.update(s, second, corev1.ConditionTrue); changed != nil {
						t.Fatalf("after %s: away from %d for %d seconds: %v changed at %d", after, from, away, changed, second)
					}
				}
			}
		}
	}
}

// A server that starts takes a dead node from the node controller, unless that has heard of no node.
func TestSilenceAtTheStart(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: false, corev1.ConditionFalse: false, corev1.ConditionUnknown: true} {
		nodes := []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "dead"}}, {ObjectMeta: metav1.ObjectMeta{Name: "live"}}}
		nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		old, renewed := metav1.NewMicroTime(start.Add(-time.Minute)), metav1.NewMicroTime(start)
		list := []coordinationv1.Lease{
			{ObjectMeta: nodes[0].ObjectMeta, Spec: coordinationv1.LeaseSpec{RenewTime: &old}},
			{ObjectMeta: nodes[1].ObjectMeta, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}},
		}
		s := &silence{timeout: 30 * time.Second}
		if s.look(start, nodes, list); s.is("dead") != want || s.is("live") {
			t.Errorf("Ready %s: dead is silent: %t, want %t; live: %t", status, s.is("dead"), want, s.is("live"))
		}
	}
	s, l := &silence{timeout: 30 * time.Second}, &leases{}
	if changed := l.update(s, 100000, corev1.ConditionUnknown); changed != nil || !s.deaf {
		t.Errorf("all are Unknown: %v changed", changed)
	}
}
