package node

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// report reports, to users and schedulers, the shortage of a node and the obstacles to its drains. next is when to
// reconcile the node again.
func (r *Reconciler) report(ctx context.Context, o *observation, decisions []decision, outcomes []outcome, next *wakeup) error {
	accounts := o.accounts(decisions, outcomes, r.Clock.Now())
	if r.Cluster.Unscheduled != nil { // other nodes return an idle block for it
		r.Cluster.Unscheduled.SetWithoutBlock(o.Name, slices.ContainsFunc(accounts[:len(decisions)], account.lacksFirstBlock))
	}
	if o.Node == nil {
		r.Metrics.forgetShares(o.Name, everyShare)
		r.Metrics.shortages.DeletePartialMatch(prometheus.Labels{"node": o.Name})
		r.Metrics.offered.DeletePartialMatch(prometheus.Labels{"node": o.Name}) // its blocks cool down for long
	}
	if !r.Cluster.Paused {
		r.Reporter.reportLabelsWait(ctx, o)
	}
	unselected := o.Standing.Kind == state.Unselected
	lacksPool := unselected || slices.ContainsFunc(o.Unserved, func(u state.Unserved) bool { return u.OfAgent && !u.AtRestart })
	setIf(lacksPool, r.Metrics.unselected, o.Name)
	setIf(o.AwaitsNodeAgent(), r.Metrics.silent, o.Name)
	if o.Node == nil || o.Standing.Kind == state.AwaitsLabels {
		r.Cluster.Awaiting.Forget(o.Name)
		return nil
	}
	if o.Standing.Kind == state.OtherIPAM {
		r.Cluster.Awaiting.Forget(o.Name)
		// The other IPAM answers for the shortage now.
		r.Metrics.shortages.DeletePartialMatch(prometheus.Labels{"node": o.Name})
		r.Metrics.pools.forget(o.Name, everyShare)
		r.Reporter.sendShortage(o.Node, nil, nil)
		return r.setShortage(ctx, o, decisions, nil, nil, next)
	}
	lack := shortageOf(accounts)
	r.reportAccounts(o, accounts, lack)
	r.Events.SendOnce(o.Node, topicFamily, event.ReasonFamilyNotRun, o.familyDisabledText())
	r.Events.SendOnce(o.Node, topicBad, event.ReasonCiliumNodeUnreadable, o.unreadableText())
	if unselected {
		lack = o.shortageOfUnselected(lack)
	}
	lack = withUnserved(lack, o.Unserved)
	r.Reporter.sendShortage(o.Node, lack, func() string { return cooldowns(r.Cluster.Ledger, accounts) })
	r.Reporter.sendUnservedPods(o)
	return r.setShortage(ctx, o, decisions, accounts, lack, next)
}

func everyShare(state.ShareKey) bool { return true }

// reportAccounts reports the shortages and obstacles of the node's shares, and has the node woken once a pool has
// a block for it.
func (r *Reconciler) reportAccounts(o *observation, accounts []account, lack *shortage) {
	now := r.Clock.Now()
	poolOf := func(obstacle expand.Obstacle) string { // "" if the block is not known
		b, _ := o.block(obstacle.CIDR)
		return b.Pool
	}
	var missing [2]int
	helpful := o.replacing // the pools with free blocks that would help
	starves := lack != nil && lack.podsWait
	for i := range accounts {
		s := &accounts[i]
		missing[s.Family] += s.balance.Missing
		setUnless(0, r.Metrics.shortages, missing[s.Family], o.Name, s.Family.String())
		if !s.isOfOwner() { // the node alone is short then
			r.Metrics.pools.set(s.Key(o.Name), s.Ruling(), s.balance.Missing > 0)
		}
		starves = starves || s.lacksFirstBlock()
		if !s.Standing.MayChange() {
			r.Metrics.drains.pause(o.Name, s.Key(o.Name))
			continue
		}
		if s.Exhausted > 0 {
			helpful[s.Family] = append(helpful[s.Family], s.Pools...)
		}
		r.Metrics.drains.set(s.Share, s.plan.Obstacles, s.marks, o.Name, poolOf, now)
	}
	r.Cluster.Awaiting.Set(o.Name, lack != nil || len(helpful[0])+len(helpful[1]) > 0, starves, helpful)
}
