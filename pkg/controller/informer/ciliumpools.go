package informer

import (
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// allCiliumPools queues every Cilium pool that exists or should exist.
func (f *Feed) allCiliumPools() {
	if f.CiliumPools == nil {
		return
	}
	for _, is := range f.CiliumPools.Missing(nil) {
		f.add(CiliumPoolQueue, is.Name, 0)
	}
	for _, name := range f.Pools.CiliumPools() {
		f.add(CiliumPoolQueue, name, 0)
	}
	f.queuePodPools()
	queueKeeper(f)
}

// queuePodPools queues the Cilium pools of single pods.
func (f *Feed) queuePodPools() {
	for _, pod := range f.Ledger.PinnedPods() {
		f.add(CiliumPoolQueue, f.CiliumPools.OfPod(pod, f.Ledger), 0)
	}
}

func (f *Feed) namespaceWants(name string, w state.PoolRequest) {
	for _, node := range f.Pods.SetNamespace(name, w) {
		f.QueueNode(node)
		queueKeeper(f)
	}
}
