package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// agentContainer is the agent's container in its pod (install/kubernetes/cilium
// in Cilium v1.20.1).
const agentContainer = "cilium-agent"

// Agents tells which nodes' agents run steadily. An agent that (re)starts
// refuses to restore an address marked for release, and can answer before it
// has restored its pods: nothing is marked, and no answer believed, until it
// has been Ready for a while with the same container. It is safe for concurrent
// use. Times are this process's own, not the node's, whose clock may be off.
type Agents struct {
	settle time.Duration

	mu     sync.RWMutex
	byNode map[string]agentRun
}

type agentRun struct {
	pod       types.UID
	container string
	ready     bool
	since     time.Time
}

// NewAgents calls an agent settled once it has been Ready for settle.
func NewAgents(settle time.Duration) *Agents {
	return &Agents{settle: settle, byNode: map[string]agentRun{}}
}

// Set takes in an agent's pod, and reports whether anything that matters has
// changed.
func (a *Agents) Set(pod *corev1.Pod, now time.Time) bool {
	node := pod.Spec.NodeName
	if node == "" {
		return false
	}
	run := agentRun{pod: pod.UID, ready: pod.DeletionTimestamp == nil && isReady(pod), since: now}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == agentContainer {
			run.container = c.ContainerID
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	was, known := a.byNode[node]
	if known && was.pod == run.pod && was.container == run.container && was.ready == run.ready {
		return false
	}
	if known && was.pod != run.pod && pod.DeletionTimestamp != nil {
		return false // the old pod of a node whose new one is known
	}
	a.byNode[node] = run
	return true
}

// Delete forgets an agent's pod.
func (a *Agents) Delete(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byNode[pod.Spec.NodeName].pod == pod.UID {
		delete(a.byNode, pod.Spec.NodeName)
	}
}

// Settled reports whether the agent of node runs steadily at now, and, where it
// is only a matter of time, when it will.
func (a *Agents) Settled(node string, now time.Time) (bool, time.Time) {
	a.mu.RLock()
	run, known := a.byNode[node]
	a.mu.RUnlock()
	if !known || !run.ready {
		return false, time.Time{}
	}
	at := run.since.Add(a.settle)
	return !now.Before(at), at
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
