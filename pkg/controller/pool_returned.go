package controller

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// maxReturned is how many returned blocks a pool's history lists, which take 16 KB.
// The CRD has the same limit.
const maxReturned = 128

// noteReturned adds to a history the blocks that rest. What was listed and is the
// node's again goes, as it did not come back after all. A block is seen while it
// rests, by this leader or the next one: only one that rests for less than
// poolStatusDelay may be missed.
func noteReturned(h *v1alpha1.PodIPPoolHistory, resting []crd.Block, held func(netip.Prefix) (crd.Block, bool), now time.Time) {
	if h.ReturnedBlocksSince == nil {
		since := metav1.NewTime(now.Truncate(time.Second))
		h.ReturnedBlocksSince = &since
	}
	kept := slices.DeleteFunc(slices.Clone(h.ReturnedBlocks), func(r v1alpha1.ReturnedBlock) bool {
		cidr, err := netip.ParsePrefix(r.CIDR)
		if err != nil {
			return true
		}
		b, there := held(cidr)
		// One that rests is added anew below.
		return there && r.Since.Time.Equal(b.Created)
	})
	for _, b := range resting {
		kept = append(kept, v1alpha1.ReturnedBlock{
			CIDR: b.CIDR.String(), NodeName: b.Node, Since: metav1.NewTime(b.Created), Until: metav1.NewTime(b.Since),
			Reason: string(b.Reason),
		})
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
