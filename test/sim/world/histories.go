package world

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// maxHistory is how long the lists of a history may be, by its CRD.
const maxHistory = 128

// holdHistory checks what an operator wrote of a pool's past: its lists stay within
// the CRD's bounds, and what a process has noted none after it forgets, be it killed
// at whatever line. Nothing here collects garbage, so that a pool that is made anew
// finds the history of the one before.
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
	listed := map[string][]metav1.Time{}
	for _, r := range now.ReturnedBlocks {
		listed[r.CIDR] = append(listed[r.CIDR], r.Since)
	}
	for _, r := range old.ReturnedBlocks {
		madeRoom := len(now.ReturnedBlocks) == maxHistory && !now.ReturnedBlocksSince.Before(&r.Until)
		if !madeRoom && !containsTime(listed[r.CIDR], r.Since) && !w.wentBack(r) {
			w.violate(6, "the history of pool %s has lost that node %s held %s since %s", v.Key, r.NodeName, r.CIDR, r.Since)
		}
	}
}

func containsTime(list []metav1.Time, t metav1.Time) bool {
	for i := range list {
		if list[i].Equal(&t) {
			return true
		}
	}
	return false
}

// wentBack says that a block that rested was in service again: it never came back.
func (w *World) wentBack(r v1alpha1.ReturnedBlock) bool {
	for _, v := range w.api.history[KindBlock] {
		b, ok := v.New.(*v1alpha1.PodIPBlock)
		was, _ := v.Old.(*v1alpha1.PodIPBlock)
		if ok && was != nil && b.Spec.CIDR == r.CIDR && b.CreationTimestamp.Equal(&r.Since) && rests(was) && !rests(b) {
			return true
		}
	}
	return false
}

func rests(b *v1alpha1.PodIPBlock) bool {
	return meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockCoolingDown)
}
