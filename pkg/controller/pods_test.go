package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

func pod(name, uid, node string, ips ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

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
			news: func(p *Pods) bool { return p.Set(readPod(pod("a", "1", "n")), noon()) }, changed: true,
			want: []expand.Pod{{Name: "default/a"}},
		},
		"not bound": {news: func(p *Pods) bool { return p.Set(readPod(pod("a", "1", "")), noon()) }},
		"on the host network": {
			news: func(p *Pods) bool { return p.Set(readPod(onHostNetwork(pod("a", "1", "n"))), noon()) },
		},
		"with addresses, sorted by name": {
			news: func(p *Pods) bool {
				p.Set(readPod(pod("b", "2", "n")), noon())
				return p.Set(readPod(pod("a", "1", "n", "10.0.0.1", "fd00::1")), noon())
			},
			changed: true,
			want:    []expand.Pod{{Name: "default/a", IPs: addrs("10.0.0.1", "fd00::1")}, {Name: "default/b"}},
		},
		"an address mapped into IPv6, and one that is none": {
			news: func(p *Pods) bool { return p.Set(readPod(pod("a", "1", "n", "::ffff:10.0.0.1", "x")), noon()) }, changed: true,
			want: []expand.Pod{{Name: "default/a", IPs: addrs("10.0.0.1")}},
		},
		"the same again": {
			news: func(p *Pods) bool {
				p.Set(readPod(pod("a", "1", "n", "10.0.0.1")), noon())
				return p.Set(readPod(inPhase(pod("a", "1", "n", "10.0.0.1"), corev1.PodRunning)), noon())
			},
			want: []expand.Pod{{Name: "default/a", IPs: addrs("10.0.0.1")}},
		},
		"it gets its address": {
			news: func(p *Pods) bool {
				p.Set(readPod(pod("a", "1", "n")), noon())
				return p.Set(readPod(pod("a", "1", "n", "10.0.0.1")), noon())
			}, changed: true,
			want: []expand.Pod{{Name: "default/a", IPs: addrs("10.0.0.1")}},
		},
		"done": {
			news: func(p *Pods) bool {
				p.Set(readPod(pod("a", "1", "n")), noon())
				return p.Set(readPod(inPhase(pod("a", "1", "n"), corev1.PodSucceeded)), noon())
			},
			changed: true,
		},
		"failed": {
			news: func(p *Pods) bool {
				p.Set(readPod(pod("a", "1", "n")), noon())
				return p.Set(readPod(inPhase(pod("a", "1", "n"), corev1.PodFailed)), noon())
			},
			changed: true,
		},
		"gone": {
			news: func(p *Pods) bool {
				p.Set(readPod(pod("a", "1", "n")), noon())
				return p.Delete(readPod(pod("a", "1", "n")).podKey)
			}, changed: true,
		},
		"gone, and never known": {news: func(p *Pods) bool { return p.Delete(readPod(pod("a", "1", "n")).podKey) }},
		"made anew under its name before the old one is gone": {
			news: func(p *Pods) bool {
				p.Set(readPod(pod("a", "1", "n", "10.0.0.1")), noon())
				p.Set(readPod(pod("a", "2", "n")), noon())
				return p.Delete(readPod(pod("a", "1", "n")).podKey)
			},
			changed: true,
			want:    []expand.Pod{{Name: "default/a"}},
		},
		"of another node": {news: func(p *Pods) bool { return p.Set(readPod(pod("a", "1", "m")), noon()) }, changed: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods := NewPods()
			if got := test.news(pods); got != test.changed {
				t.Errorf("reports a change: %t", got)
			}
			if diff := cmp.Diff(test.want, pods.On("n"), compareNetip(), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(expand.Pod{}, "Seen")); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsForgetsNodes(t *testing.T) {
	pods := NewPods()
	pods.Set(readPod(pod("a", "1", "n")), noon())
	pods.Delete(readPod(pod("a", "1", "n")).podKey)
	if len(pods.byNode) != 0 {
		t.Errorf("still keeps %v", pods.byNode)
	}
}

func TestPodsSeenWhenFirstBound(t *testing.T) {
	pods := NewPods()
	pods.Set(readPod(pod("a", "1", "n")), noon())
	pods.Set(readPod(pod("a", "1", "n", "10.0.0.1")), noon().Add(time.Minute))
	if got := pods.On("n")[0].Seen; !got.Equal(noon()) {
		t.Errorf("first seen at %v, want %v", got, noon())
	}
}
