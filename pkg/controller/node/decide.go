package node

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// decision is the plan for one share of a node. It is not changed once it is made.
type decision struct {
	*state.Share
	budget expand.Budget
	plan   expand.Plan
	// nextMemory is for the next decision.
	nextMemory expand.Memory
}

// decide decides on each share of the node that may change, with what pacing lets it begin now, and records the
// decisions.
func (r *Reconciler) decide(ctx context.Context, o *observation) []decision {
	if o.CiliumNode == nil && o.Standing.Kind != state.Gone {
		return nil
	}
	now := r.Clock.Now()
	r.forgetShares(o)
	r.Pacing.Settle(o.Name, o.Shares, now)
	decisions := make([]decision, len(o.Shares))
	// Shares without requested drains come first. They return the tickets that they do not use at once, while a drain
	// that waits for a replacement would keep its ticket from them for as long.
	r.decideShares(o, false, make([]expand.Budget, len(o.Shares)), decisions, now)
	r.decideShares(o, true, r.budgets(o, now), decisions, now)
	decisions = slices.DeleteFunc(decisions, func(d decision) bool { return d.Share == nil })
	r.keepDecisions(ctx, o, decisions)
	return decisions
}

// decideShares makes the decisions on shares that may change: on those with requested drains, or on the others.
func (r *Reconciler) decideShares(o *observation, requested bool, budgets []expand.Budget, decisions []decision, now time.Time) {
	for i := range o.Shares {
		share := &o.Shares[i]
		if !share.Standing.MayChange() || slices.ContainsFunc(share.State.Blocks, isRequested) != requested {
			continue
		}
		memory := *o.memory.forShare(o, share)
		if o.CiliumNode != nil {
			most := expand.MostReclaims(now, share.Policy, &share.State, memory)
			budgets[i].Reclaims, budgets[i].ReclaimDelay = r.Pacing.ReserveReclaims(share, most, now)
		}
		decisions[i] = decideShare(now, o, share, budgets[i], memory, decisions)
		if d := &decisions[i]; d.budget.Reclaims > 0 {
			r.Pacing.SpendReclaims(o.Name, d.budget.Reclaims, reclaims(d.plan), d.Pools[0], now)
		}
	}
}

func isRequested(b expand.Block) bool { return b.Request != expand.None }

// budgets returns the requested drains that each share of the node may begin now.
func (r *Reconciler) budgets(o *observation, now time.Time) []expand.Budget {
	if o.CiliumNode == nil { // no drain begins
		r.Pacing.GiveBack(o.Name, now)
		return make([]expand.Budget, len(o.Shares))
	}
	return r.Pacing.DrainBudgets(o.Name, o.Shares, r.Cluster.Ledger, r.Cluster.PoolOf, now)
}

// decideShare decides on a share of a node, after others. One block of a node is compacted, and one is parked, at a
// time.
func decideShare(now time.Time, o *observation, share *state.Share, budget expand.Budget, memory expand.Memory, earlier []decision) decision {
	budget.OtherDrains = slices.ContainsFunc(o.Blocks, func(b crd.Block) bool { return b.Phase == ipalloc.Draining })
	for i := range earlier {
		budget.OtherDrains = budget.OtherDrains || len(earlier[i].plan.Drain) > 0
		budget.OtherParks = budget.OtherParks || earlier[i].plan.Park.IsValid()
	}
	d := decision{Share: share, budget: budget}
	d.plan, d.nextMemory = expand.Decide(now, share.Policy, share.State, budget, memory)
	return d
}

// keepDecisions keeps the memory for the next decisions, and reports the decisions by metrics and in the log.
func (r *Reconciler) keepDecisions(ctx context.Context, o *observation, decisions []decision) {
	for i := range o.Shares {
		if share := &o.Shares[i]; !share.Standing.MayChange() {
			*o.memory.forShare(o, share) = expand.Memory{} // changes meanwhile go unobserved
			*o.memory.growthOf(o, share) = growth{}
		}
	}
	var idle [2][]string
	for i := range decisions {
		d := &decisions[i]
		*o.memory.forShare(o, d.Share) = d.nextMemory
		o.memory.growthOf(o, d.Share).note(d, r.Clock.Now())
		if len(d.nextMemory.IdleSince) > 0 {
			idle[d.Family] = o.PoolsInService(d.Family)
		}
		r.Metrics.decided(d.Family, d.plan)
		r.Reporter.logPlan(ctx, d.Share, d.plan)
	}
	r.Pressure.SetIdle(o.Name, idle)
	r.Metrics.sized(o.Name, decisions)
}

// reclaims returns the blocks that a plan reclaims.
func reclaims(plan expand.Plan) (blocks []netip.Prefix) {
	for _, d := range plan.Drain {
		if d.Reason.IsReclaim() {
			blocks = append(blocks, d.CIDR)
		}
	}
	return blocks
}

// withoutMarks returns decisions that mark no address, and neither park nor delete a block.
func withoutMarks(decisions []decision) []decision {
	decisions = slices.Clone(decisions)
	for i := range decisions {
		decisions[i].plan = decisions[i].plan.WithoutMarks()
	}
	return decisions
}

// covers reports whether a decision is about a block of a Cilium pool: same family, same Cilium pool.
func (d *decision) covers(b crd.Block, ciliumPool string) bool {
	return d.Family == ipalloc.FamilyOf(b.CIDR.Addr()) && d.CiliumPool == ciliumPool
}

// sizeOf returns the number of addresses of a block that is assigned whole.
func (d *decision) sizeOf(cidr netip.Prefix) int {
	i := slices.IndexFunc(d.State.Blocks, func(b expand.Block) bool { return b.CIDR == cidr })
	if i < 0 {
		return 0
	}
	return d.State.Blocks[i].Size
}

// publishes returns the number of addresses that the plan adds of the node's blocks.
func (d *decision) publishes() int {
	n := len(d.plan.Publish)
	for _, cidr := range d.plan.Assign {
		n += d.sizeOf(cidr)
	}
	return n
}

// forgetShares drops the memory of families and Cilium pools that no longer concern the node: a block
// that comes later must not be taken for an earlier one.
func (r *Reconciler) forgetShares(o *observation) {
	for _, f := range ipalloc.Families() {
		hasShare := o.HasShare(f)
		if o.memory.hadShare[f] && !hasShare {
			r.Metrics.Forget(o.Name, f)
		}
		o.memory.hadShare[f] = hasShare
	}
	if o.CiliumNode != nil && !o.CiliumNode.NeverReadByAgent() {
		o.memory.first = firstBlocks{}
	}
	maps.DeleteFunc(o.memory.unwritable, func(uid types.UID, _ failedWrite) bool {
		return uid != o.uid() && !slices.ContainsFunc(o.Blocks, func(b crd.Block) bool { return b.UID == uid })
	})
	o.memory.shares = slices.DeleteFunc(o.memory.shares, func(s poolMemory) bool {
		if slices.ContainsFunc(o.Shares, func(share state.Share) bool { return share.CiliumPool == s.ciliumPool }) {
			return false
		}
		r.Metrics.forgetShares(o.Name, func(share state.ShareKey) bool { return share.CiliumPool == s.ciliumPool })
		for _, f := range ipalloc.Families() {
			r.Events.Last.Changed(o.Name, planTopics[f]+s.ciliumPool, "")
		}
		return true
	})
}
