package world

import (
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// maxHistory is the CRD's limit on the length of a history's lists.
const maxHistory = 128

// holdHistory checks what an operator wrote to a pool's history: its lists stay within the
// CRD's limits, and nothing that a process has recorded is lost later, wherever a process is
// killed. Nothing here collects garbage, so a recreated pool finds its predecessor's history.
func (w *World) holdHistory(v Version) {
	now, _ := v.New.(*v1alpha1.PodIPPoolHistory)
	if w.writer == nil || now == nil {
		return
	}
	w.wrote = w.now
	w.lasting++
	for _, n := range []int{len(now.ReturnedBlocks), len(now.IPv4.HeldBlocks), len(now.IPv6.HeldBlocks)} {
		if n > maxHistory {
			w.violate(6, "the history of pool %s has a list of %d, of which the API server refuses more than %d", v.Key, n, maxHistory)
		}
	}
	old, _ := v.Old.(*v1alpha1.PodIPPoolHistory)
	if old == nil || len(old.OwnerReferences) != 1 || old.OwnerReferences[0] != now.OwnerReferences[0] {
		return // another pool's
	}
	if now.ReturnedBlocksSince.Before(old.ReturnedBlocksSince) {
		w.violate(6, "the history of pool %s says that it goes back to %s, and went back to %s", v.Key, now.ReturnedBlocksSince, old.ReturnedBlocksSince)
	}
	for _, r := range old.ReturnedBlocks {
		madeRoom := len(now.ReturnedBlocks) == maxHistory && !now.ReturnedBlocksSince.Before(&r.Until)
		if !madeRoom && !slices.ContainsFunc(now.ReturnedBlocks, func(k v1alpha1.ReturnedBlock) bool {
			return k.CIDR == r.CIDR && k.Since.Equal(&r.Since) && !k.Until.Before(&r.Until)
		}) {
			w.violate(6, "the history of pool %s has lost that node %s held %s since %s", v.Key, r.NodeName, r.CIDR, r.Since)
		}
	}
}
