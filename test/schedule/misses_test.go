package main

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

func TestMisses(t *testing.T) {
	grows := func(s *story) {
		s.has("a", 1, 0)
		s.has("b", 9, 0)
		s.has("a", 3, 0) // version 3
		s.bound("p", "a")
		s.has("a", 5, 0)
	}
	for name, test := range map[string]struct {
		tell         func(*story)
		had          agent.Exhausted
		early, wrong int
	}{
		"the agent has not seen a new block":   {tell: grows, had: agent.Exhausted{Seen: "1", Pool: 3, Own: 2}, early: 1},
		"the agent has seen all":               {tell: grows, had: agent.Exhausted{Seen: "3", Pool: 5, Own: 2}, wrong: 1},
		"the agent took one more of its own":   {tell: grows, had: agent.Exhausted{Seen: "3", Pool: 5, Own: 3}, wrong: 1},
		"the agent has not seen a report only": {tell: func(s *story) { s.has("a", 1, 0); s.has("b", 9, 0); s.has("a", 1, 0); s.bound("p", "a") }, had: agent.Exhausted{Seen: "1", Pool: 3, Own: 2}, wrong: 1},
		"there is no CiliumNode":               {tell: func(s *story) { s.has("b", 1, 0); s.bound("q", "b"); s.bound("r", "b"); s.bound("p", "a") }, wrong: 1},
		"the CiliumNode is gone": {tell: func(s *story) {
			s.has("a", 9, 0)
			s.add(change{name: "a", gone: true, addresses: &addressesSeen{}})
			s.bound("q", "a")
			s.bound("p", "a")
		}, wrong: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := &story{}, &misses{}
			test.tell(s)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "4"}, Spec: corev1.PodSpec{NodeName: "a"}}
			test.had.Err = agent.ErrExhausted
			m.note(pod, fmt.Errorf("before: %w", &test.had))
			m.begin()
			m.note(pod, fmt.Errorf("allocate: %w", &test.had))
			early, wrong := m.judge(*s)
			if early != test.early || len(wrong) != test.wrong {
				t.Errorf("got %d early and %q, want %d and %d", early, wrong, test.early, test.wrong)
			}
		})
	}
}
