package node

import (
	"context"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// offerInterval is the least time that a Node's offer stands, unless a mark waits for the next one:
// pods that come and go together cause one write.
const offerInterval = time.Second

// offered is a Node's offer to pods, in a version of the Node.
type offered struct {
	uid                   types.UID
	version               string
	capacity, allocatable scheduling.Offers
	// written is when this process wrote the Node's last offer.
	written time.Time
}

// offer writes the number of addresses that the Node offers to pods that request one. The offer
// excludes the plans' marks for release, and comes before the marks: a pod is bound only where an
// address is left for it. If it fails, no address must be marked, and no block parked or deleted.
func (r *Reconciler) offer(ctx context.Context, o *observation, decisions []decision, result *result) error {
	if o.Node == nil || r.Cluster.Paused {
		return nil
	}
	last := o.memory.lastOffer(o.Node)
	change := r.changeOffers(o, decisions, last)
	if len(change) == 0 {
		return nil
	}
	marks := slices.ContainsFunc(decisions, func(d decision) bool { return len(d.plan.Mark)+len(d.plan.Retire) > 0 })
	if next := last.written.Add(offerInterval); !marks && r.Clock.Now().Before(next) {
		result.next.noLaterThan(next, "the next offer may be written")
		return nil
	}
	written, err := r.Reporter.writeOffer(ctx, o.Name, last.version, change)
	if err != nil {
		return err
	}
	o.memory.offered = offeredBy(written)
	o.memory.offered.written = r.Clock.Now()
	return nil
}

// changeOffers returns the resources of the Node's offer that must change, with their new values; nil:
// no offer.
func (r *Reconciler) changeOffers(o *observation, decisions []decision, last offered) map[string]any {
	pools := map[string]bool{"": true}
	for _, offers := range []scheduling.Offers{last.capacity, last.allocatable} {
		for pool := range offers {
			pools[pool] = true
		}
	}
	for i := range o.Shares {
		pools[o.Shares[i].CiliumPool] = true
	}
	change := map[string]any{}
	for _, f := range ipalloc.Families() {
		sum := scheduling.NoOffer
		for pool := range pools {
			n, known := o.offerOf(r.OfferFamilies, decisions, f, pool)
			if !known {
				return nil
			}
			if n != scheduling.NoOffer {
				sum = max(sum, 0) + n
			}
			if last.capacity.Of(pool)[f] == n && last.allocatable.Of(pool)[f] == n {
				continue
			}
			name := string(state.OfferResource(f, pool))
			if change[name] = nil; n != scheduling.NoOffer {
				change[name] = strconv.Itoa(n)
			}
		}
		if len(r.OfferFamilies) > 0 {
			setUnless(scheduling.NoOffer, r.Metrics.offered, sum, o.Name, f.String())
		}
	}
	return change
}

// offerOf returns the number of addresses of a family and Cilium pool that a Node should offer. If
// known is false, it keeps its offers: its CiliumNode is about to be restored.
func (o *observation) offerOf(families []ipalloc.Family, decisions []decision, f ipalloc.Family, ciliumPool string) (n int, known bool) {
	i := slices.IndexFunc(o.Shares, func(s state.Share) bool { return s.Family == f && s.CiliumPool == ciliumPool })
	if !slices.Contains(families, f) {
		return scheduling.NoOffer, true
	}
	if o.CiliumNode == nil {
		return 0, false
	}
	if i < 0 || o.Standing.IsMoving() || !o.Shares[i].State.RunsFamily() || !state.MayOffer(ciliumPool) {
		return scheduling.NoOffer, true
	}
	decided := decision{Share: &o.Shares[i]}
	for _, d := range decisions {
		if d.Share == decided.Share {
			decided = d
		}
	}
	n = expand.Offer(decided.State, decided.budget, decided.plan)
	if n == 0 && ciliumPool != "" {
		return scheduling.NoOffer, true
	}
	return n, true
}

// offeredBy reads the offer of a Node.
func offeredBy(node *corev1.Node) offered {
	return offered{
		uid: node.UID, version: node.ResourceVersion,
		capacity: scheduling.OffersIn(node.Status.Capacity), allocatable: scheduling.OffersIn(node.Status.Allocatable),
	}
}
