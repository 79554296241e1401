package controller

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// maxReturned is how many returned blocks a pool's history lists, which take 16 KB.
// The CRD has the same limit.
const maxReturned = 128

// noteReturned adds to a history the blocks that rest. A block is seen while it
// rests, by this leader or the next one: only one that rests for less than
// poolStatusDelay may be missed. What is listed stays until newer ones need the
// place, whatever a process that lags believes of its block. One that went back
// into service is listed anew when it rests again; readers know by its object that
// it had not come back.
func noteReturned(h *v1alpha1.PodIPPoolHistory, resting []crd.Block, now time.Time) {
	if h.ReturnedBlocksSince == nil {
		since := metav1.NewTime(now.Truncate(time.Second))
		h.ReturnedBlocksSince = &since
	}
	kept := slices.Clone(h.ReturnedBlocks)
	for _, b := range resting {
		r := v1alpha1.ReturnedBlock{
			CIDR: b.CIDR.String(), NodeName: b.Node, Since: metav1.NewTime(b.Created), Until: metav1.NewTime(b.Since),
			Reason: string(b.Reason),
		}
		i := slices.IndexFunc(kept, func(k v1alpha1.ReturnedBlock) bool { return k.CIDR == r.CIDR && k.Since.Equal(&r.Since) })
		switch {
		case i < 0:
			kept = append(kept, r)
		case kept[i].Until.Before(&r.Until):
			kept[i] = r
		}
	}
	slices.SortFunc(kept, byReturn)
	if n := len(kept) - maxReturned; n > 0 {
		// What rests is forgotten anew at each look, what was listed only once.
		if forgotten := kept[n-1].Until; h.ReturnedBlocksSince.Before(&forgotten) {
			h.ReturnedBlocksSince = &forgotten
		}
		kept = kept[n:]
	}
	h.ReturnedBlocks = kept
}

func byReturn(a, b v1alpha1.ReturnedBlock) int {
	return cmp.Or(a.Until.Compare(b.Until.Time), cmp.Compare(a.CIDR, b.CIDR))
}
