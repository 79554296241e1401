package pool

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// maxReturned is how many returned blocks a pool's history lists, which take 16 KB. The
// CRD has the same limit.
const maxReturned = 128

// noteReturned adds the blocks that cool down to a history. This leader or the next one
// sees a block while it cools down: only a cooldown shorter than the delay of a status, 1 to
// 10 s, may be missed. An entry stays until newer ones need its place, even if a lagging process
// sees its block in another state. A block that went back into service gets a new entry
// when it cools down again; its PodIPBlock shows readers that it had not been returned.
func noteReturned(h *v1alpha1.PodIPPoolHistory, coolingDown []crd.Block, now time.Time) {
	if h.ReturnedBlocksSince == nil {
		since := metav1.NewTime(now.Truncate(time.Second))
		h.ReturnedBlocksSince = &since
	}
	type key struct {
		cidr  string
		since int64
	}
	kept, index := slices.Clone(h.ReturnedBlocks), map[key]int{}
	for i, r := range kept {
		index[key{r.CIDR, r.Since.Unix()}] = i
	}
	for _, b := range coolingDown {
		r := v1alpha1.ReturnedBlock{
			CIDR: b.CIDR.String(), NodeName: b.Node, Since: metav1.NewTime(b.Created), Until: metav1.NewTime(b.Since),
			Reason: string(b.Reason),
		}
		k := key{r.CIDR, r.Since.Unix()}
		switch i, known := index[k]; {
		case !known:
			index[k] = len(kept)
			kept = append(kept, r)
		case kept[i].Until.Before(&r.Until):
			kept[i] = r
		}
	}
	slices.SortFunc(kept, byReturn)
	if n := len(kept) - maxReturned; n > 0 {
		// Blocks cooling down are derived anew at each reconcile; the list records them
		// once.
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
