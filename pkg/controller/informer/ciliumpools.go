package informer

import (
	"context"
	"fmt"
	"sync"
	"time"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// knownEvery is the interval of checks whether the API server serves a kind that it did not serve
// before.
const knownEvery = 30 * time.Second

// later watches a kind once the API server serves it.
func (f *Feed) later(ctx context.Context, logger logr.Logger, w Watch) {
	for tick := time.NewTicker(knownEvery); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return
		}
		known, err := w.Known()
		if err != nil {
			logger.Error(err, "cannot tell whether the API server knows a kind; trying again", "kind", fmt.Sprintf("%T", w.Object))
		}
		if known {
			tick.Stop()
			break
		}
	}
	var reflectors sync.WaitGroup
	defer reflectors.Wait()
	initial, err := f.begin(ctx, w, &reflectors)
	if err != nil {
		logger.Error(err, "cannot watch a kind that the API server has come to know; restart the operator")
		return
	}
	if toolscache.WaitFor(ctx, "", initial) {
		w.found()
	}
}

// ciliumPoolsFound queues all pools, as CiliumPodIPPools are now known.
func (f *Feed) ciliumPoolsFound() {
	f.CiliumPools.SetKnown()
	f.allCiliumPools()
	f.AllPools()
}

func (f *Feed) namespace(n *corev1.Namespace) {
	f.namespaceWants(n.Name, state.PoolRequestOf(&n.ObjectMeta))
}

func (f *Feed) namespaceGone(n *corev1.Namespace) { f.namespaceWants(n.Name, state.PoolRequest{}) }

func (f *Feed) namespaceWants(name string, w state.PoolRequest) {
	for _, node := range f.Pods.SetNamespace(name, w) {
		f.QueueNode(node)
	}
}

func (f *Feed) ciliumPoolStore() Store {
	return &records[*ciliumv2alpha1.CiliumPodIPPool, *ciliumpool.View]{
		read: ciliumpool.Read, there: f.ciliumPool, gone: f.ciliumPoolGone, missing: anyVersion(f.CiliumPools.Missing),
	}
}

func (f *Feed) ciliumPool(v *ciliumpool.View) {
	f.ciliumPoolMoved(v.Name, f.CiliumPools.Set(v))
}

func (f *Feed) ciliumPoolGone(v *ciliumpool.View) {
	f.ciliumPoolMoved(v.Name, f.CiliumPools.Delete(v))
}

// ciliumPoolMoved queues the CiliumPodIPPool, the PodIPPools that serve it, and, if its
// selectors changed, the nodes.
func (f *Feed) ciliumPoolMoved(name string, picks bool) {
	f.queueCiliumPool(name)
	for _, pool := range f.Pools.Serving(name) {
		f.queuePoolStatus(pool.Name)
	}
	if picks {
		f.allNodes()
	}
}

// allCiliumPools queues every Cilium pool that exists or should exist.
func (f *Feed) allCiliumPools() {
	if f.CiliumPools == nil {
		return
	}
	for _, name := range append(f.CiliumPools.Names(), f.Pools.CiliumPools()...) {
		f.queueCiliumPool(name)
	}
}

func (f *Feed) queueCiliumPool(name string) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.ciliumPools != nil && f.leads() {
		f.ciliumPools.Add(request(name))
	}
}
