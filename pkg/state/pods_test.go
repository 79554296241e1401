package state

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func inPhase(p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	p.Status.Phase = phase
	return p
}

func onHostNetwork(p *corev1.Pod) *corev1.Pod {
	p.Spec.HostNetwork = true
	return p
}

func TestPods(t *testing.T) {
	tests := map[string]struct {
		news    func(p *Pods) bool // result of the last change
		changed bool
		want    []expand.Pod // on node n
	}{
		"bound": {
			news: func(p *Pods) bool { return p.Set(ReadPod(fixtures.Pod("a", "1", "n")), fixtures.Noon()) }, changed: true,
			want: []expand.Pod{{Name: "default/a"}},
		},
		"not bound": {news: func(p *Pods) bool { return p.Set(ReadPod(fixtures.Pod("a", "1", "")), fixtures.Noon()) }},
		"requests addresses": {
			news: func(p *Pods) bool {
				return p.Set(ReadPod(fixtures.Requesting(fixtures.Pod("a", "1", "n"), 1)), fixtures.Noon())
			},
			changed: true,
			want:    []expand.Pod{{Name: "default/a", Requests: [2]uint16{1, 0}}},
		},
		"on the host network": {
			news: func(p *Pods) bool { return p.Set(ReadPod(onHostNetwork(fixtures.Pod("a", "1", "n"))), fixtures.Noon()) },
		},
		"with addresses, sorted by name": {
			news: func(p *Pods) bool {
				p.Set(ReadPod(fixtures.Pod("b", "2", "n")), fixtures.Noon())
				return p.Set(ReadPod(fixtures.Pod("a", "1", "n", "10.0.0.1", "fd00::1")), fixtures.Noon())
			},
			changed: true,
			want:    []expand.Pod{{Name: "default/a", IPs: fixtures.Addrs("10.0.0.1", "fd00::1")}, {Name: "default/b"}},
		},
		"an address mapped into IPv6, and one that is none": {
			news: func(p *Pods) bool {
				return p.Set(ReadPod(fixtures.Pod("a", "1", "n", "::ffff:10.0.0.1", "x")), fixtures.Noon())
			}, changed: true,
			want: []expand.Pod{{Name: "default/a", IPs: fixtures.Addrs("10.0.0.1")}},
		},
		"the same again": {
			news: func(p *Pods) bool {
				p.Set(ReadPod(fixtures.Pod("a", "1", "n", "10.0.0.1")), fixtures.Noon())
				return p.Set(ReadPod(inPhase(fixtures.Pod("a", "1", "n", "10.0.0.1"), corev1.PodRunning)), fixtures.Noon())
			},
			want: []expand.Pod{{Name: "default/a", IPs: fixtures.Addrs("10.0.0.1")}},
		},
		"it gets its address": {
			news: func(p *Pods) bool {
				p.Set(ReadPod(fixtures.Pod("a", "1", "n")), fixtures.Noon())
				return p.Set(ReadPod(fixtures.Pod("a", "1", "n", "10.0.0.1")), fixtures.Noon())
			}, changed: true,
			want: []expand.Pod{{Name: "default/a", IPs: fixtures.Addrs("10.0.0.1")}},
		},
		"done": {
			news: func(p *Pods) bool {
				p.Set(ReadPod(fixtures.Pod("a", "1", "n")), fixtures.Noon())
				return p.Set(ReadPod(inPhase(fixtures.Pod("a", "1", "n"), corev1.PodSucceeded)), fixtures.Noon())
			},
			changed: true,
		},
		"failed": {
			news: func(p *Pods) bool {
				p.Set(ReadPod(fixtures.Pod("a", "1", "n")), fixtures.Noon())
				return p.Set(ReadPod(inPhase(fixtures.Pod("a", "1", "n"), corev1.PodFailed)), fixtures.Noon())
			},
			changed: true,
		},
		"gone": {
			news: func(p *Pods) bool {
				p.Set(ReadPod(fixtures.Pod("a", "1", "n")), fixtures.Noon())
				return p.Delete(ReadPod(fixtures.Pod("a", "1", "n")).PodKey, fixtures.Noon())
			}, changed: true,
		},
		"gone, and never known": {news: func(p *Pods) bool { return p.Delete(ReadPod(fixtures.Pod("a", "1", "n")).PodKey, fixtures.Noon()) }},
		"recreated under its name before the old one is gone": {
			news: func(p *Pods) bool {
				p.Set(ReadPod(fixtures.Pod("a", "1", "n", "10.0.0.1")), fixtures.Noon())
				p.Set(ReadPod(fixtures.Pod("a", "2", "n")), fixtures.Noon())
				return p.Delete(ReadPod(fixtures.Pod("a", "1", "n")).PodKey, fixtures.Noon())
			},
			changed: true,
			want:    []expand.Pod{{Name: "default/a"}},
		},
		"of another node": {news: func(p *Pods) bool { return p.Set(ReadPod(fixtures.Pod("a", "1", "m")), fixtures.Noon()) }, changed: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods := NewPods()
			if got := test.news(pods); got != test.changed {
				t.Errorf("reports a change: %t", got)
			}
			if diff := cmp.Diff(test.want, pods.On("n"), fixtures.CompareNetip(), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(expand.Pod{}, "Seen")); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsForgetsNodes(t *testing.T) {
	pods := NewPods()
	pods.Set(ReadPod(fixtures.Pod("a", "1", "n")), fixtures.Noon())
	pods.Delete(ReadPod(fixtures.Pod("a", "1", "n")).PodKey, fixtures.Noon())
	if len(pods.byNode) != 0 {
		t.Errorf("still keeps %v", pods.byNode)
	}
}

// Pods that have ended are remembered for a while if RememberEnded is set.
func TestEndedPods(t *testing.T) {
	at := func(d time.Duration) time.Time { return fixtures.Noon().Add(d) }
	pods := NewPods()
	end := func(name string, after time.Duration) {
		pod := ReadPod(fixtures.Pod(name, name, "n"))
		pods.Set(pod, at(0))
		pods.Delete(pod.PodKey, at(after))
	}
	end("forgotten", 0)
	pods.RememberEnded = true
	end("a", 0)
	end("b", 10*time.Second)
	for _, test := range []struct {
		after time.Duration
		want  []string
		until time.Duration
	}{
		{0, []string{"default/a", "default/b"}, 30 * time.Second},
		{30 * time.Second, []string{"default/b"}, 40 * time.Second},
		{40 * time.Second, nil, 0},
	} {
		names, until := pods.Ended("n", at(test.after))
		if diff := cmp.Diff(test.want, names); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", test.after, diff)
		}
		if test.want != nil && !until.Equal(at(test.until)) {
			t.Errorf("after %s: until %s, want %s", test.after, until, at(test.until))
		}
	}
	end("c", time.Minute)
	if n := len(pods.ended["n"]); n != 1 {
		t.Errorf("%d ended pods are kept, want the last one", n)
	}
}
