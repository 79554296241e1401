package node

import (
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// moveWait is the time after which a node asks again whether it may move off a pool, unless another
// one has moved and makes it ask.
const moveWait = time.Minute

// pace adds to one family of a node the number of reclaims that the rates leave it. It uses up no
// turns.
func (r *Reconciler) pace(fo *state.Share, now time.Time) {
	s := &fo.State
	if len(fo.Pools) > 0 && s.ReclaimHold.For == "" {
		var wait time.Duration
		s.ReclaimBudget, wait = r.Pacing.Budget(fo.Pools[0], now)
		if wait > 0 {
			s.ReclaimHold = expand.Hold{For: expand.WaitTurn, Until: now.Add(wait)}
		}
	}
}

// holdMoves limits the number of nodes that move, at a time, off a pool that no longer selects
// them. A node keeps its place from before its first block drains until its last one has left.
func (r *Reconciler) holdMoves(node string, shares []state.Share, now time.Time) {
	moves := map[string]bool{} // by pool, whether it may move off it
	for i := range shares {
		if shares[i].Paused != "" {
			continue
		}
		blocks := shares[i].State.Blocks
		for j := range blocks {
			b := &blocks[j]
			pool := r.PoolOf(b.CIDR)
			if b.Request != expand.NodeUnselected || b.Phase == ipalloc.CoolingDown || pool == nil {
				continue
			}
			if b.Hold.For != "" {
				continue // it has not begun, and takes no other's place
			}
			may, known := moves[pool.Name]
			if !known {
				may = r.Pacing.Move(node, pool, r.Ledger)
				moves[pool.Name] = may
			}
			switch {
			case may:
			case b.Phase == ipalloc.Draining: // as it is idle, until its turn comes
				b.Request = expand.None
			default:
				b.Hold = expand.Hold{For: expand.WaitNodes, Until: now.Add(moveWait)}
			}
		}
	}
	r.Pacing.KeepMoves(node, moves)
}

// giveTurns limits requested drains to the rate of their pools. A drain keeps its turn until it
// starts, across windows too: a drain without a replacement would use up a turn in each window, and
// leave none for another that could proceed.
func (r *Reconciler) giveTurns(w state.ShareKey, s *expand.State, now time.Time) {
	var asked []netip.Prefix
	for i := range s.Blocks {
		b := &s.Blocks[i]
		pool := r.PoolOf(b.CIDR)
		if !state.MayWait(b) || pool == nil {
			if b.Phase == ipalloc.InService {
				r.Pacing.ReturnTurn(w, b.CIDR, now)
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
	r.Pacing.KeepTurns(w, asked)
}

// returnTurns returns the turns that Pacing granted for drains that did not begin.
func (r *Reconciler) returnTurns(plans []familyPlan) {
	now := r.Clock.Now()
	for i := range plans {
		if p := &plans[i]; p.turns > 0 {
			r.Pacing.Return(p.Pools[0], p.turns, now)
		}
	}
}
