package world

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// knownAgents are the agents' pods that an operator's watch has delivered, interpreted here and
// not by the code under test.
type knownAgents struct {
	clock processClock
	runs  map[string]knownRun // by pod
}

// knownRun is an agent's pod, and since when the operator has seen it in this state.
type knownRun struct {
	node, container string
	uid             types.UID
	ready           bool
	since           time.Time
}

func newKnownAgents(o *Operator) *knownAgents {
	return &knownAgents{clock: processClock{o}, runs: map[string]knownRun{}}
}

func (k *knownAgents) there(obj client.Object) {
	if k == nil {
		return
	}
	pod := obj.(*corev1.Pod)
	run := knownRun{node: pod.Spec.NodeName, uid: pod.UID, since: k.clock.Now()}
	for _, c := range pod.Status.ContainerStatuses {
		run.container = c.ContainerID
	}
	for _, c := range pod.Status.Conditions {
		run.ready = run.ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	if was, known := k.runs[keyOf(pod)]; known && was.uid == run.uid && was.container == run.container && was.ready == run.ready {
		return
	}
	k.runs[keyOf(pod)] = run
}

func (k *knownAgents) gone(key string) {
	if k != nil {
		delete(k.runs, key)
	}
}

// settled reports whether the operator has seen the agent of a node Ready with the same
// container for long enough.
func (k *knownAgents) settled(node string) bool {
	for _, run := range k.runs {
		if run.node == node {
			return run.ready && k.clock.Since(run.since) >= k.clock.o.settings.AgentSettle
		}
	}
	return false
}
