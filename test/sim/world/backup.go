package world

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// takeBackup keeps pools and blocks as they are, for restore.
func (w *World) takeBackup() {
	w.backup = map[Kind]map[string]client.Object{}
	for _, k := range []Kind{KindPool, KindBlock} {
		w.backup[k] = map[string]client.Object{}
		for _, key := range w.api.Keys(k) {
			w.backup[k][key] = w.api.Get(k, key)
		}
	}
}

// restore makes pools and blocks what they were, as a tool does that knows
// objects and not etcd: with new UIDs and without a status. What is another
// node's by now stays.
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
