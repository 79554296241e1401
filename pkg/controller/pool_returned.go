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

// maxReturned is how many returned blocks a pool remembers: 16 KB of its object.
// The CRD has the same limit.
const maxReturned = 128

// noteReturned adds to a status the blocks that rest. What was listed and is the
// node's again goes, as it did not come back after all. Entering and leaving a
// rest both change the counts of the status, so that this costs no write. A block
// is seen while it rests, by this leader or the next one: only one that rests for
// less than poolStatusDelay may be missed.
func noteReturned(s *v1alpha1.PodIPPoolStatus, resting []crd.Block, held func(netip.Prefix) (crd.Block, bool), now time.Time) {
	if s.ReturnedSince == nil {
		since := metav1.NewTime(now.Truncate(time.Second))
		s.ReturnedSince = &since
	}
	kept := slices.DeleteFunc(slices.Clone(s.Returned), func(r v1alpha1.ReturnedBlock) bool {
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
			CIDR: b.CIDR.String(), Node: b.Node, Since: metav1.NewTime(b.Created), Until: metav1.NewTime(b.Since),
			Reason: string(b.Reason),
		})
	}
	slices.SortFunc(kept, byReturn)
	if n := len(kept) - maxReturned; n > 0 {
		// What rests is forgotten anew at each look, what was listed only once.
		if forgotten := kept[n-1].Until; s.ReturnedSince.Before(&forgotten) {
			s.ReturnedSince = &forgotten
		}
		kept = kept[n:]
	}
	s.Returned = kept
}

func byReturn(a, b v1alpha1.ReturnedBlock) int {
	return cmp.Or(a.Until.Compare(b.Until.Time), cmp.Compare(a.CIDR, b.CIDR))
}
