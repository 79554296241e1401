package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// pressed records how full a pool is, and queues the nodes with idle blocks if that
// changes their wait.
func (r *NodeReconciler) pressed(queue func(node string)) func(*crd.Pool, ipalloc.Family, int) {
	return func(pool *crd.Pool, f ipalloc.Family, taken int) {
		was := r.Pacing.taken(pool.Name, f)
		from := pool.Policy.PressurePercent
		if r.Pacing.setTaken(pool.Name, f, taken) && from > 0 && max(was, taken) >= from {
			for _, node := range r.Idle() {
				queue(node)
			}
		}
	}
}

// pace adds to one family of a node how full its pools are, and how many reclaims
// the rates and other nodes leave it. It uses up no turns.
func (r *NodeReconciler) pace(o *observation, fo *state.Share, now time.Time) {
	s := &fo.State
	state.ApplyPressure(s, o.Node, o.Blocks, func(pool string) int { return r.Pacing.taken(pool, fo.Family) })
	if len(fo.Pools) > 0 && s.ReclaimHold.For == "" {
		var wait time.Duration
		s.ReclaimBudget, wait = r.Pacing.Budget(fo.Pools[0], now)
		if wait > 0 {
			s.ReclaimHold = expand.Hold{For: expand.WaitTurn, Until: now.Add(wait)}
		}
	}
}

// giveTurns limits requested drains to the rate of their pools. A drain keeps its turn
// until it starts, across windows too: a drain without a replacement would use up a
// turn in each window, and leave none for one that could proceed.
func (r *NodeReconciler) giveTurns(w nodeFamily, s *expand.State, now time.Time) {
	var asked []netip.Prefix
	for i := range s.Blocks {
		b := &s.Blocks[i]
		pool := r.PoolOf(b.CIDR)
		if !state.MayWait(b) || pool == nil {
			if b.Phase == ipalloc.InService {
				r.Pacing.returnTurn(w, b.CIDR, now)
			}
			continue
		}
		asked = append(asked, b.CIDR)
		if b.Hold.For != "" {
			continue
		}
		if wait := r.Pacing.Turn(w, b.CIDR, pool, now); wait > 0 {
			b.Hold = expand.Hold{For: expand.WaitTurn, Until: now.Add(wait)}
		}
	}
	r.Pacing.keepTurns(w, asked)
}

// returnTurns returns the turns that Pacing granted for drains that did not begin.
func (r *NodeReconciler) returnTurns(plans []familyPlan) {
	now := r.Clock.Now()
	for i := range plans {
		if p := &plans[i]; p.turns > 0 {
			r.Pacing.Return(p.Pools[0], p.turns, now)
		}
	}
}

// actOnHolds reports on each block in service why its requested drain has not begun.
func (r *NodeReconciler) actOnHolds(ctx context.Context, o *observation, plans []familyPlan) error {
	for _, p := range plans {
		for _, b := range o.Blocks {
			if !r.about(p, b, o.CiliumNode) || b.Phase != ipalloc.InService || drains(p.plan, b.CIDR) {
				continue
			}
			why, message := r.heldBecause(b, p.plan)
			if message == b.Held {
				continue
			}
			if err := r.setHeld(ctx, o, b.CIDR, why, message); err != nil {
				return err
			}
		}
	}
	return nil
}

func drains(p expand.Plan, cidr netip.Prefix) bool {
	return slices.ContainsFunc(p.Drain, func(d expand.Drain) bool { return d.CIDR == cidr })
}

// heldBecause describes why a block's drain does not begin; "": none is requested.
func (r *NodeReconciler) heldBecause(b crd.Block, p expand.Plan) (expand.WaitReason, string) {
	for _, w := range p.Waits {
		if w.CIDR == b.CIDR && (w.For == expand.WaitWindow || w.For == expand.WaitTurn) {
			return w.For, r.heldMessage(b, w)
		}
	}
	return "", ""
}

// heldMessage changes only when a window opens or closes, or the hourly rate is used
// up: it is written to every held block.
func (r *NodeReconciler) heldMessage(b crd.Block, w expand.Wait) string {
	const what = "it is to leave its node, but has not begun: "
	pool := r.Pools.Get(b.Pool)
	switch {
	case pool == nil:
		return ""
	case w.For == expand.WaitTurn:
		return what + fmt.Sprintf("%d blocks of pool %s may begin in an hour, and as many have", pool.Maintenance.BlocksPerHour, b.Pool)
	case w.Until.IsZero():
		return what + fmt.Sprintf("no maintenance window of pool %s will ever open", b.Pool)
	}
	return what + fmt.Sprintf("the next maintenance window of pool %s opens at %s", b.Pool, w.Until.UTC().Format(time.RFC3339))
}

func (r *NodeReconciler) setHeld(ctx context.Context, o *observation, cidr netip.Prefix, why expand.WaitReason, message string) error {
	_, obj, err := r.heldBlock(ctx, o, cidr)
	if err != nil {
		return err
	}
	if crd.SetBlockHeld(obj, why, message, r.Clock.Now()) {
		err = r.Client.Status().Update(ctx, obj)
		if r.Metrics.wrote("PodIPBlock", "held", err) != nil {
			return fmt.Errorf("telling on block %s why it is held: %w", cidr, err)
		}
	}
	written, err := crd.BlockFrom(obj)
	if err != nil {
		return err
	}
	r.Ledger.Assume(written)
	return nil
}
