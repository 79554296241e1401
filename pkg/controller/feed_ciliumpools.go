package controller

import (
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
)

func (f *Feed) ciliumPoolStore() Store {
	return &records[*ciliumv2alpha1.CiliumPodIPPool, *ciliumpool.View]{
		read: ciliumpool.Read, there: f.ciliumPool, gone: f.ciliumPoolGone, missing: f.CiliumPools.missing,
	}
}

func (f *Feed) ciliumPool(v *ciliumpool.View) {
	f.ciliumPoolMoved(v.Name, f.CiliumPools.Set(v))
}

func (f *Feed) ciliumPoolGone(v *ciliumpool.View) {
	f.ciliumPoolMoved(v.Name, f.CiliumPools.Delete(v))
}

// ciliumPoolMoved looks at what is kept, at what PodIPPools say of it, and, where
// it picks other pods than before, at what nodes need.
func (f *Feed) ciliumPoolMoved(name string, picks bool) {
	f.queueCiliumPool(name)
	for _, pool := range f.Pools.Serving(name) {
		f.queuePool(pool.Name, poolStatusDelay)
	}
	if picks {
		f.allNodes()
	}
}

// allCiliumPools looks at all of Cilium's pools that there are, or are to be.
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
	if f.ciliumPools != nil {
		f.ciliumPools.Add(request(name))
	}
}
