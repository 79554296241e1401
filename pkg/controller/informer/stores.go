package informer

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Reflector stores of extracted fields, not whole objects.

func (f *Feed) ciliumNodeStore() Store {
	read := func(obj client.Object) *ciliumnode.View {
		if known := f.Ledger.CiliumNodeAt(obj); known != nil {
			return known
		}
		return f.Mode.View(obj)
	}
	return &records[client.Object, *ciliumnode.View]{
		read: read, there: f.ciliumNode, gone: f.ciliumNodeGone, missing: f.Ledger.MissingCiliumNodes,
	}
}

func (f *Feed) podStore() Store {
	read := state.ReadPod
	if f.Mode.ManyPools() {
		read = state.ReadPodWithRequest
	}
	return &records[*corev1.Pod, state.BoundPod]{
		read: read,
		there: func(p state.BoundPod) {
			f.scheduled(p.UID())
			if f.Pods.Set(p, f.Now()) {
				f.QueueNode(p.Node)
			}
		},
		gone: func(p state.BoundPod) {
			if f.Pods.Delete(p.PodKey, f.Now()) {
				f.QueueNode(p.Node)
			}
		},
		missing: anyVersion(f.Pods.Missing),
	}
}

func (f *Feed) unscheduledStore() Store {
	return &records[*corev1.Pod, scheduling.UnscheduledPod]{
		read: scheduling.ReadUnscheduled,
		there: func(p scheduling.UnscheduledPod) {
			if f.Unscheduled.Set(p, f.Now()) {
				f.queueUnscheduled(assignDelay)
			}
		},
		gone:    func(p scheduling.UnscheduledPod) { f.scheduled(p.UID()) },
		missing: anyVersion(f.Unscheduled.Missing),
	}
}

// scheduled drops an unscheduled pod that is bound or gone. The two watches of pods are not in
// step: a bound pod must not count twice.
func (f *Feed) scheduled(pod types.UID) {
	if f.Unscheduled != nil && f.Unscheduled.Delete(pod) {
		f.queueUnscheduled(reassignDelay)
	}
}

// Reassign has all unscheduled pods assigned anew, and blocks found for nodes without any.
func (f *Feed) Reassign() {
	if f.Unscheduled != nil {
		f.queueUnscheduled(reassignDelay)
	}
}

func (f *Feed) agentStore() Store {
	return &records[*corev1.Pod, state.AgentPod]{
		read: state.ReadAgent,
		there: func(a state.AgentPod) {
			if f.Agents.Set(a, f.Now()) {
				f.QueueNode(a.Node)
			}
		},
		gone: func(a state.AgentPod) {
			f.Agents.Delete(a.PodKey)
			f.QueueNode(a.Node)
		},
		missing: anyVersion(f.Agents.Missing),
	}
}

// anyVersion is for records that only the watch changes: every list is later than they
// are.
func anyVersion[R any](missing func(map[types.UID]bool) []R) func(map[types.UID]bool, string) []R {
	return func(listed map[types.UID]bool, _ string) []R { return missing(listed) }
}
