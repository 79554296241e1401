package node

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// difference is the changes this process would make on a node if it were not in shadow mode.
type difference struct {
	// adopt counts CIDRs that another IPAM has assigned to the node and no block holds, claim the
	// families that would get another block.
	adopt, claim int
	// drain and free count blocks that would start to drain or to cool down.
	drain, free int
}

// kinds returns the counts by value of the label "what".
func (d difference) kinds() map[string]int {
	return map[string]int{"adopt": d.adopt, "claim": d.claim, "drain": d.drain, "free": d.free}
}

// String is "" without a difference.
func (d difference) String() string {
	if d == (difference{}) {
		return ""
	}
	return fmt.Sprintf("adopt %d, claim %d, drain %d, free %d", d.adopt, d.claim, d.drain, d.free)
}

// reportShadow reports the plan of the node without writing. It runs in place of all writes.
func (r *Reconciler) reportShadow(ctx context.Context, o *observation) reconcile.Result {
	if o.Node == nil && o.CiliumNode == nil && len(o.Blocks) == 0 {
		r.forget(o.Name)
		return reconcile.Result{}
	}
	d, wait := r.difference(o)
	r.Metrics.shadowed(o.Name, d)
	if r.Events.Last.Changed(o.Name, topicShadow, d.String()) {
		log.FromContext(ctx).Info("in shadow: would change", "adopt", d.adopt, "claim", d.claim, "drain", d.drain, "free", d.free)
	}
	return reconcile.Result{RequeueAfter: wait}
}

// difference decides as usual, for a node with blocks for all its CIDRs. Addresses they lack in the
// pool are no difference: the old IPAM serves them.
func (r *Reconciler) difference(o *observation) (difference, time.Duration) {
	d := difference{}
	again := time.Duration(0)
	now := r.Clock.Now()
	if o.Node == nil { // its blocks would cool down
		for _, b := range o.Blocks {
			if b.Phase != ipalloc.CoolingDown {
				d.free++
			}
		}
		return d, 0
	}
	if o.CiliumNode != nil {
		d.adopt = len(ipalloc.Uncovered(o.CiliumNode.CIDRsOfAnyIPAM(), crd.CIDRs(o.Blocks)))
	}
	for i := range o.Shares {
		share := &o.Shares[i]
		if !share.Standing.MayChange() || d.adopt > 0 {
			continue
		}
		s := share.State
		s.Adopting = false // the plan once its agent runs in crd mode
		var budget expand.Budget
		if len(share.Pools) > 0 {
			budget.Reclaims, _ = r.Pacing.PeekReclaims(share.Pools[0], now)
		}
		memory := o.memory.forShare(o, share)
		plan, next := expand.Decide(now, share.Policy, s, budget, *memory)
		*memory = next
		if plan.Claim.Addresses > 0 {
			d.claim++
		}
		d.drain += len(plan.Drain)
		d.free += len(plan.CoolDown)
		if wait := plan.RequeueAt.Sub(now); !plan.RequeueAt.IsZero() && (again == 0 || wait < again) {
			again = max(wait, time.Millisecond)
		}
	}
	return d, again
}
