package state

import (
	"testing"

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
		news    func(p *Pods) bool // what the last of them reports
		changed bool
		want    []expand.Pod // on node n
	}{
		"bound": {
			news: func(p *Pods) bool { return p.Set(ReadPod(fixtures.Pod("a", "1", "n")), fixtures.Noon()) }, changed: true,
			want: []expand.Pod{{Name: "default/a"}},
		},
		"not bound": {news: func(p *Pods) bool { return p.Set(ReadPod(fixtures.Pod("a", "1", "")), fixtures.Noon()) }},
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
				return p.Delete(ReadPod(fixtures.Pod("a", "1", "n")).PodKey)
			}, changed: true,
		},
		"gone, and never known": {news: func(p *Pods) bool { return p.Delete(ReadPod(fixtures.Pod("a", "1", "n")).PodKey) }},
		"recreated under its name before the old one is gone": {
			news: func(p *Pods) bool {
				p.Set(ReadPod(fixtures.Pod("a", "1", "n", "10.0.0.1")), fixtures.Noon())
				p.Set(ReadPod(fixtures.Pod("a", "2", "n")), fixtures.Noon())
				return p.Delete(ReadPod(fixtures.Pod("a", "1", "n")).PodKey)
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
	pods.Delete(ReadPod(fixtures.Pod("a", "1", "n")).PodKey)
	if len(pods.byNode) != 0 {
		t.Errorf("still keeps %v", pods.byNode)
	}
}
