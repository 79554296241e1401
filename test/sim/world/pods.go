package world

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// addRetry is how long a kubelet waits after a failed CNI ADD.
const addRetry = 10 * time.Second

func (m *machine) podKey(slot string) string {
	if m.w.sched.binds(slot) {
		return "default/" + slot
	}
	return m.w.workload.namespaceOf(slot) + "/" + m.name + "-" + slot
}

func (m *machine) podObject(slot string) *corev1.Pod {
	pod, _ := m.w.api.Get(KindPod, m.podKey(slot)).(*corev1.Pod)
	if pod != nil && pod.Spec.NodeName != m.name {
		return nil // bound to another node, or to none
	}
	return pod
}

// newPod binds a new pod to the node. It requests something, or nothing for "".
func (m *machine) newPod(slot, asks string) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.w.workload.namespaceOf(slot), Name: m.name + "-" + slot},
		Spec:       corev1.PodSpec{NodeName: m.name},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	ask(pod, asks)
	m.w.must(m.w.api.Create(pod))
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// wantsAdd reports whether the pod waits for its addresses.
func (m *machine) wantsAdd(slot string, pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && !finished(pod) && m.endpoints[slot] == nil &&
		m.w.workload.dropped[string(pod.UID)] == nil && m.w.clock.now.Sub(m.w.workload.refused[m.podKey(slot)]) >= addRetry
}

// add is a CNI ADD.
func (m *machine) add(slot string) {
	pod := m.podObject(slot)
	pools, knows := m.askedBy(pod)
	var v4, v6 netip.Addr
	err := agent.ErrNotInPool
	if knows {
		v4, v6, err = m.allocate(pools, keyOf(pod))
	}
	m.w.workload.countAdd(pod, pools, knows, err)
	if err != nil {
		m.w.workload.refused[m.podKey(slot)] = m.w.clock.now
		m.w.Counts.Ops["add refused"]++
		return
	}
	delete(m.w.workload.refused, m.podKey(slot))
	m.endpoints[slot] = &endpoint{pod: pod, pools: pools, v4: v4, v6: v6}
	m.w.rules.allocated(m, m.endpoints[slot])
}

// wantsDel reports whether the pod should return its addresses.
func (m *machine) wantsDel(slot string, pod *corev1.Pod) bool {
	e := m.endpoints[slot]
	return e != nil && (pod == nil || pod.UID != e.pod.GetUID() || pod.DeletionTimestamp != nil || finished(pod))
}

// del is a CNI DEL.
func (m *machine) del(slot string) {
	for _, addr := range m.endpoints[slot].addrs() {
		m.release(addr)
	}
	delete(m.endpoints, slot)
}

// wantsStatus reports whether the pod's status lacks its addresses.
func (m *machine) wantsStatus(slot string, pod *corev1.Pod) bool {
	e := m.endpoints[slot]
	return e != nil && pod != nil && pod.UID == e.pod.GetUID() && !slices.Equal(pod.Status.PodIPs, e.podIPs()) && !finished(pod)
}

func (e *endpoint) podIPs() []corev1.PodIP {
	var out []corev1.PodIP
	for _, addr := range []netip.Addr{e.v4, e.v6} {
		if addr.IsValid() { // a status keeps what the pod began with
			out = append(out, corev1.PodIP{IP: addr.String()})
		}
	}
	return out
}

func (m *machine) writeStatus(slot string) {
	pod := m.podObject(slot).DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIPs = m.endpoints[slot].podIPs()
	m.w.must(m.w.api.Update(pod, false))
}

// finish writes that a pod has ended.
func (m *machine) finish(slot string) {
	if m.w.workload.sandboxesGoFirst() {
		m.del(slot)
	}
	pod := m.podObject(slot).DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	m.w.must(m.w.api.Update(pod, false))
}

// deletePod requests the deletion of a pod; gone completes it once the kubelet is done.
func (m *machine) deletePod(slot string) {
	m.w.api.terminate(KindPod, m.podKey(slot), m.podObject(slot))
}

func (m *machine) podGone(slot string) {
	delete(m.w.workload.refused, m.podKey(slot))
	m.w.mustNot(m.w.api.Delete(KindPod, m.podKey(slot), nil, nil))
}
