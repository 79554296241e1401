package world

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// takeBackup saves pools and blocks for restore.
func (u *users) takeBackup() {
	u.backup = map[Kind]map[string]client.Object{}
	for _, k := range []Kind{KindPool, KindBlock} {
		u.backup[k] = map[string]client.Object{}
		for _, key := range u.api.Keys(k) {
			u.backup[k][key] = u.api.Get(k, key)
		}
	}
}

// restore restores pools and blocks as a tool does that copies objects, not etcd: with new UIDs
// and without a status. CIDRs that now belong to another node are skipped.
func (u *users) restore() {
	for _, k := range []Kind{KindPool, KindBlock} {
		for _, key := range sortedKeys(u.backup[k]) {
			obj := u.backup[k][key].DeepCopyObject().(client.Object)
			if now := u.api.Get(k, key); now != nil {
				if k == KindBlock && now.(*v1alpha1.PodIPBlock).Spec.NodeName != obj.(*v1alpha1.PodIPBlock).Spec.NodeName {
					continue
				}
				if k == KindPool && crd.CiliumPoolOf(now.(*v1alpha1.PodIPPool)) != crd.CiliumPoolOf(obj.(*v1alpha1.PodIPPool)) {
					continue // which cannot be changed
				}
				u.tear(k, key)
			}
			obj.SetResourceVersion("")
			u.must(u.api.Create(obj))
		}
	}
}
