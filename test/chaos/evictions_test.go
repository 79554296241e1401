package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// history passes versions to a judge, one after the other.
type history struct {
	judge *evictionJudge
	last  map[string]client.Object
}

func (h *history) show(kind invariant.Kind, name string, now client.Object) {
	h.judge.see(invariant.Change{Kind: kind, Name: name, Version: 7, Old: h.last[name], New: now})
	h.last[name] = now
}

// pod adds a pod of a slot with an address, and then applies the edits one after the other.
func (h *history) pod(s *slot, address string, edits ...func(*corev1.Pod)) {
	pod := s.pod()
	pod.UID, pod.Status.PodIP = types.UID(pod.Name), address
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	h.show(invariant.KindPod, pod.Name, pod)
	for _, edit := range edits {
		pod = pod.DeepCopy()
		edit(pod)
		h.show(invariant.KindPod, pod.Name, pod)
	}
}

// agent restarts the agent of a node.
func (h *history) agent(node string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "cilium-" + node}, Spec: corev1.PodSpec{NodeName: node}}
	h.show(invariant.KindPod, pod.Name, pod)
	pod = pod.DeepCopy()
	leaves(pod)
	h.show(invariant.KindPod, pod.Name, pod)
}

func (h *history) agentReady(node string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "cilium-" + node}, Spec: corev1.PodSpec{NodeName: node}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	h.show(invariant.KindPod, pod.Name, pod)
}

func leaves(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func evicted(p *corev1.Pod) {
	leaves(p)
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
}

// TestEvictions breaks each of the rules that renumber must keep.
func TestEvictions(t *testing.T) {
	const old, other = "10.0.0.7", "10.1.0.7"
	web := func(number int) *slot { return &slot{kind: replicaSet, app: "web", least: 2, number: number} }
	free := &slot{kind: replicaSet, app: "batch"}
	for name, test := range map[string]struct {
		do   func(h *history)
		harm string // a part of it; "" if there is none
	}{
		"an eviction": {func(h *history) { h.pod(free, old, evicted) }, ""},
		"as a budget allows": {func(h *history) {
			for i := range 2 {
				h.pod(web(i), old)
			}
			h.pod(web(2), old, evicted)
		}, ""},
		"one more than a budget allows": {func(h *history) {
			for i := range 2 {
				h.pod(web(i), old)
			}
			h.pod(web(2), old, evicted)
			h.pod(web(1), old, evicted)
		}, "1 pods of web are Ready, 2 must be"},
		"a deletion":                         {func(h *history) { h.pod(free, old, leaves) }, "deleted without an eviction"},
		"an address that does not drain":     {func(h *history) { h.pod(free, other, evicted) }, "does not drain"},
		"a pod that loses its address":       {func(h *history) { h.pod(free, old, func(p *corev1.Pod) { p.Status.PodIP = "" }) }, `has ""`},
		"a pod that gets another address":    {func(h *history) { h.pod(free, old, func(p *corev1.Pod) { p.Status.PodIP = other }) }, "has \"" + other},
		"a pod that nothing brings back":     {func(h *history) { h.pod(free, old, func(p *corev1.Pod) { p.OwnerReferences = nil; evicted(p) }) }, "no controller"},
		"people delete a pod of their own":   {func(h *history) { h.pod(free, old, func(p *corev1.Pod) { p.OwnerReferences = nil; leaves(p) }) }, ""},
		"agents of two zones at a time":      {func(h *history) { h.agent("a1"); h.agent("b1") }, ""},
		"agents of a zone at a time":         {func(h *history) { h.agent("a1"); h.agent("a2") }, "both in zone-a"},
		"agents of a zone one after another": {func(h *history) { h.agent("a1"); h.agentReady("a1"); h.agent("a2") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{judge: newEvictionJudge(), last: map[string]client.Object{}}
			for _, node := range []string{"a1", "a2", "b1"} {
				h.show(invariant.KindNode, node, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{zoneLabel: "zone-" + node[:1]}}})
			}
			pool := &v1alpha1.PodIPPool{Spec: v1alpha1.PodIPPoolSpec{IPv4: &v1alpha1.IPv4Ranges{CIDRs: []v1alpha1.PoolCIDR{
				{CIDR: "10.0.0.0/24", AllocationPolicy: v1alpha1.AllocationDrain}, {CIDR: "10.1.0.0/24"},
			}}}}
			h.show(invariant.KindPool, "main", pool)
			test.do(h)
			harm := strings.Join(h.judge.tell().Harm, "; ")
			if (harm == "") != (test.harm == "") || !strings.Contains(harm, test.harm) {
				t.Errorf("harm %q, want %q", harm, test.harm)
			}
			if (judge(verdict{Evictions: h.judge.tell()}) == nil) != (test.harm == "") {
				t.Error("the verdict says otherwise")
			}
		})
	}
}
