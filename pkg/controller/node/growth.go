package node

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// waitBuckets are the bounds of the histograms of waits, in seconds. One is the objective, 5 s.
func waitBuckets() []float64 { return []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800} }

// growth is the memory of a share's need of blocks. A new process measures from its own start.
type growth struct {
	// decided is when the share was last decided on. since is when its need of a block began that is not met yet. Zero:
	// never, and there is none.
	decided, since time.Time
}

// note records a decision at now. A need begins with the first pod that was bound since the last decision.
func (g *growth) note(d *decision, now time.Time) {
	needs := d.plan.Claim.Blocks > 0 || !g.since.IsZero() && d.publishes() > 0
	if !needs {
		g.since = time.Time{}
	} else if g.since.IsZero() {
		g.since = now
		for _, pod := range d.State.Pods {
			if !g.decided.IsZero() && pod.Seen.After(g.decided) && pod.Seen.Before(g.since) {
				g.since = pod.Seen
			}
		}
	}
	g.decided = now
}

// measureGrowth observes the waits that a written change of the CiliumNode has ended: of shares for blocks, and of pods for
// addresses.
func (r *Reconciler) measureGrowth(o *observation, decisions []decision, outcomes []outcome, change *ciliumnode.Change) {
	now := r.Clock.Now()
	for i := range decisions {
		d := &decisions[i]
		g := o.memory.growthOf(o, d.Share)
		if outcomes[i].Exhausted > 0 { // the wait for the operator begins once a pool has a block
			g.since = time.Time{}
		}
		if !grows(change, d.Family) {
			continue
		}
		if !g.since.IsZero() && outcomes[i].err == nil {
			r.Metrics.growths.WithLabelValues(d.Family.String()).Observe(now.Sub(g.since).Seconds())
			g.since = time.Time{}
		}
		for _, seen := range servedPods(d, &outcomes[i]) {
			r.Metrics.podWaits.WithLabelValues(d.Family.String()).Observe(now.Sub(seen).Seconds())
		}
	}
}

// grows reports whether a change publishes addresses of a family.
func grows(change *ciliumnode.Change, f ipalloc.Family) bool {
	return slices.ContainsFunc(change.Publish, func(a netip.Addr) bool { return ipalloc.FamilyOf(a) == f }) ||
		slices.ContainsFunc(change.Assign, func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) == f })
}

// servedPods returns when the pods were seen bound that had no address in the node's pool before the writes of a decision, and
// have one now. The first pods got the addresses that were there.
func servedPods(d *decision, out *outcome) []time.Time {
	before := max(0, d.plan.Demand-(d.plan.Capacity-d.publishes())-d.plan.ServedElsewhere)
	balance := expand.BalanceOf(&d.State, d.plan, out.Shortfall, true)
	served := before - max(0, balance.Demand-balance.Has-balance.Coming)
	var waiting []time.Time
	for _, pod := range d.State.Pods {
		if len(pod.IPs) == 0 {
			waiting = append(waiting, pod.Seen)
		}
	}
	slices.SortFunc(waiting, time.Time.Compare)
	waiting = waiting[max(0, len(waiting)-before):]
	return waiting[:max(0, min(served, len(waiting)))]
}
