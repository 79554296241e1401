package world

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// addRetry is the wait of a kubelet after a failed CNI ADD.
const addRetry = 10 * time.Second

func (m *kubelet) podKey(slot string) string {
	if m.w.sched.binds(slot) || m.w.workload.stays(slot) {
		return "default/" + slot
	}
	return m.w.workload.namespaceOf(slot) + "/" + m.name + "-" + slot
}

func (m *kubelet) podObject(slot string) *corev1.Pod {
	pod, _ := m.w.api.Get(KindPod, m.podKey(slot)).(*corev1.Pod)
	if pod != nil && pod.Spec.NodeName != m.name {
		return nil // bound to another node, or to none
	}
	return pod
}

// newPod binds a new pod to the node. It has a request unless asks is "".
func (m *kubelet) newPod(slot, asks string) {
	pod := &corev1.Pod{}
	if m.w.workload.stays(slot) {
		pod = m.w.workload.named(slot)
	}
	pod.Status.Phase = corev1.PodPending
	m.w.bind(pod, m.name)
	pod.Namespace, pod.Name, _ = strings.Cut(m.podKey(slot), "/")
	ask(pod, asks)
	m.w.must(m.w.api.Create(pod))
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// wantsAdd reports whether the pod waits for its addresses.
func (m *kubelet) wantsAdd(slot string, pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && !finished(pod) && m.endpoints[slot] == nil &&
		m.w.workload.dropped[string(pod.UID)] == nil && !m.nodeAgent.hasDead(pod) && m.w.clock.now.Sub(m.w.workload.refused[m.podKey(slot)]) >= addRetry
}

// add is a CNI ADD.
func (m *kubelet) add(slot string) {
	pod := m.podObject(slot)
	pools, knows := m.askedBy(pod)
	var sandbox nodeipam.Owner
	var v4, v6 netip.Addr
	err := agent.ErrNotInPool
	if m.nodeAgent != nil {
		if sandbox, v4, v6, err = m.nodeAgent.assign(pod); err != nil {
			m.nodeAgent.release(sandbox)
		}
		pools = m.nodeAgent.poolsOf(pod)
	} else if knows {
		v4, v6, err = m.allocate(pools, keyOf(pod))
	}
	if err != nil {
		m.w.workload.refused[m.podKey(slot)] = m.w.clock.now
		return
	}
	delete(m.w.workload.refused, m.podKey(slot))
	m.endpoints[slot] = &endpoint{pod: pod, sandbox: sandbox, pools: pools, v4: v4, v6: v6}
	m.w.rules.allocated(m.machine, m.endpoints[slot])
	if m.nodeAgent != nil {
		m.w.rules.checkPlugin(m.machine, m.endpoints[slot])
	}
}

// wantsDel reports whether the pod should return its addresses.
func (m *kubelet) wantsDel(slot string, pod *corev1.Pod) bool {
	e := m.endpoints[slot]
	return e != nil && (pod == nil || pod.UID != e.pod.GetUID() || pod.DeletionTimestamp != nil || finished(pod))
}

// del is a CNI DEL.
func (m *kubelet) del(slot string) {
	if m.nodeAgent != nil {
		m.nodeAgent.release(m.endpoints[slot].sandbox)
		delete(m.endpoints, slot)
		return
	}
	for _, addr := range m.endpoints[slot].addrs() {
		m.release(addr)
	}
	delete(m.endpoints, slot)
}

// wantsStatus reports whether the pod's status lacks its addresses.
func (m *kubelet) wantsStatus(slot string, pod *corev1.Pod) bool {
	e := m.endpoints[slot]
	return e != nil && pod != nil && pod.UID == e.pod.GetUID() && !slices.Equal(pod.Status.PodIPs, e.podIPs()) && !finished(pod)
}

// isWritten reports whether the status of a pod with addresses shows them.
func (m *kubelet) isWritten(slot string) bool {
	return slices.Equal(m.podObject(slot).Status.PodIPs, m.endpoints[slot].podIPs())
}

func (e *endpoint) podIPs() []corev1.PodIP {
	var out []corev1.PodIP
	for _, addr := range []netip.Addr{e.v4, e.v6} {
		if addr.IsValid() { // a status keeps the pod's first addresses
			out = append(out, corev1.PodIP{IP: addr.String()})
		}
	}
	return out
}

func (m *kubelet) writeStatus(slot string) {
	pod := m.podObject(slot).DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIPs = m.endpoints[slot].podIPs()
	m.w.must(m.w.api.Update(pod, false))
}

// finish writes that a pod has ended.
func (m *kubelet) finish(slot string) {
	if m.w.workload.sandboxesGoFirst() {
		m.del(slot)
	}
	pod := m.podObject(slot).DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	m.w.must(m.w.api.Update(pod, false))
}

// deletePod requests the deletion of a pod; gone completes it once the kubelet is done.
func (m *kubelet) deletePod(slot string) {
	m.w.api.terminate(KindPod, m.podKey(slot), m.podObject(slot))
}

func (m *kubelet) podGone(slot string) {
	delete(m.w.workload.refused, m.podKey(slot))
	m.w.mustNot(m.w.api.Delete(KindPod, m.podKey(slot), nil, nil))
}

// kubelet creates and ends the pods of a machine, and writes their status and the agent's.
type kubelet struct {
	*machine
	pod podState // of the agent, as the kubelet knows and as it was written
}

type podState struct {
	run, writtenRun     int
	ready, writtenReady bool
	// ended: its last run ended on its own.
	ended, writtenEnded bool
}

// endpoint is a pod with its addresses.
type endpoint struct {
	pod     client.Object
	sandbox nodeipam.Owner // where the CNI plugin assigns addresses
	pools   [2]string      // of Cilium's, that they are of, by family
	v4, v6  netip.Addr
	off6    bool // its agent does not run the family of v6
	// forfeited: its Node was gone for so long that its block went to another node.
	forfeited bool
}

// addrs returns the addresses that its agent holds for it.
func (e *endpoint) addrs() []netip.Addr {
	return slices.DeleteFunc([]netip.Addr{e.v4, e.v6}, func(a netip.Addr) bool { return !a.IsValid() || e.off6 && a == e.v6 })
}

func (e *endpoint) owner() string { return keyOf(e.pod) }

// writePod writes the status of the agent's pod that its kubelet has now.
func (m *kubelet) writePod() {
	key := "kube-system/cilium-" + m.name
	pod, exists := m.w.api.Get(KindPod, key).(*corev1.Pod)
	if exists {
		pod = pod.DeepCopy()
	} else {
		pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-" + m.name, Labels: map[string]string{"k8s-app": "cilium"}},
			Spec:       corev1.PodSpec{NodeName: m.name, HostNetwork: true},
		}
	}
	ready := corev1.ConditionFalse
	if m.pod.ready {
		ready = corev1.ConditionTrue
	}
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: m.readySince()}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "cilium-agent", ContainerID: m.container(),
			LastTerminationState: m.lastEnd(),
		}},
	}
	if exists {
		m.w.must(m.w.api.Update(pod, false))
	} else {
		m.w.must(m.w.api.Create(pod))
	}
	m.pod.writtenRun, m.pod.writtenReady, m.pod.writtenEnded = m.pod.run, m.pod.ready, m.pod.ended
}

// container is the container of its agent, as its kubelet knows it.
func (m *kubelet) container() string { return fmt.Sprintf("containerd://%s-%d", m.name, m.pod.run) }

// lastEnd is how the agent's last run ended, if it ended on its own: a second after its start.
func (m *kubelet) lastEnd() corev1.ContainerState {
	if !m.pod.ended {
		return corev1.ContainerState{}
	}
	at := metav1.NewTime(m.w.clock.now.Truncate(time.Second))
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: metav1.NewTime(at.Add(-time.Second)), FinishedAt: at}}
}

// readySince is when, according to its kubelet, it last became Ready or not Ready, which only
// migrations read.
func (m *kubelet) readySince() metav1.Time {
	if m.w.cfg.Move == nil {
		return metav1.Time{}
	}
	return metav1.NewTime(m.w.clock.now.Truncate(time.Second))
}

func (m *kubelet) podDue() bool {
	return m.run > 0 && (m.pod.run != m.pod.writtenRun || m.pod.ready != m.pod.writtenReady || m.pod.ended != m.pod.writtenEnded)
}
