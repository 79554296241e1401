package world

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// takeBackup saves pools and blocks for restore.
func (w *World) takeBackup() {
	w.backup = map[Kind]map[string]client.Object{}
	for _, k := range []Kind{KindPool, KindBlock} {
		w.backup[k] = map[string]client.Object{}
		for _, key := range w.api.Keys(k) {
			w.backup[k][key] = w.api.Get(k, key)
		}
	}
}

// restore restores pools and blocks as a tool does that copies objects, not etcd: with new UIDs
// and without a status. CIDRs that now belong to another node are skipped.
func (w *World) restore() {
	for _, k := range []Kind{KindPool, KindBlock} {
		for _, key := range sortedKeys(w.backup[k]) {
			obj := w.backup[k][key].DeepCopyObject().(client.Object)
			if now := w.api.Get(k, key); now != nil {
				if k == KindBlock && now.(*v1alpha1.PodIPBlock).Spec.NodeName != obj.(*v1alpha1.PodIPBlock).Spec.NodeName {
					continue
				}
				if k == KindPool && crd.CiliumPoolOf(now.(*v1alpha1.PodIPPool)) != crd.CiliumPoolOf(obj.(*v1alpha1.PodIPPool)) {
					continue // which cannot be changed
				}
				w.tear(k, key)
			}
			obj.SetResourceVersion("")
			w.must(w.api.Create(obj))
		}
	}
}
