package controller

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// What reflectors fill, of the kinds that are kept as what is decided on alone.

func (f *Feed) ciliumNodeStore() Store {
	return &records[client.Object, *ciliumnode.Kept]{
		read: f.Mode.Keep, there: f.ciliumNode, gone: f.ciliumNodeGone, missing: f.Ledger.missingNodes,
	}
}

func (f *Feed) podStore() Store {
	read := readPod
	if f.Mode.ManyPools() {
		read = readAsking
	}
	return &records[*corev1.Pod, boundPod]{
		read: read,
		there: func(p boundPod) {
			if f.Pods.Set(p, f.Now()) {
				f.queueNode(p.node)
			}
		},
		gone: func(p boundPod) {
			if f.Pods.Delete(p.podKey) {
				f.queueNode(p.node)
			}
		},
		missing: f.Pods.missing,
	}
}

func (f *Feed) agentStore() Store {
	return &records[*corev1.Pod, AgentPod]{
		read: ReadAgent,
		there: func(a AgentPod) {
			if f.State.Set(a, f.Now()) {
				f.queueNode(a.node)
			}
		},
		gone: func(a AgentPod) {
			f.State.Delete(a.podKey)
			f.queueNode(a.node)
		},
		missing: f.State.missing,
	}
}
