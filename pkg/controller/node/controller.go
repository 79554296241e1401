// Package node assigns blocks to nodes, reclaims them, and keeps each CiliumNode in sync
// with the blocks of its node: observe, decide, act, report.
package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/metrics"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pacing"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/refusal"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/retry"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

const (
	// maxRepairs bounds the repairs of one reconcile: a node needs two or three.
	maxRepairs = 4
	// awaitingBlocksRetry is when to reconcile a node short of addresses, even if no
	// event reported new ones.
	awaitingBlocksRetry = retry.Longest
)

// Reconciler assigns blocks to nodes, reclaims them, and keeps each CiliumNode in
// sync with the node's blocks.
type Reconciler struct {
	state.Cluster

	// Cache reads from the informers, Live from the API server.
	Cache client.Reader
	Live  client.Reader

	CiliumNodes *ciliumnode.Client
	Blocks      *BlockClient
	Reporter    *Reporter
	Pacing      *pacing.Pacing
	Pressure    *state.Pressure
	Events      *event.Recorder
	Metrics     *Metrics
	Shared      *metrics.Shared
	Clock       clock.PassiveClock

	// WaitShown waits until the watch has delivered a block, as Ledger.WaitShown.
	WaitShown func(context.Context, types.UID) error
	// OfferFamilies are the families of which Nodes offer their addresses to pods.
	OfferFamilies []ipalloc.Family
	// SetsNoTaint: takes the shortage taint off Nodes, but never sets it, because the operator's
	// own Pod does not tolerate it.
	SetsNoTaint bool
	// Shadow: reports the plan without writing.
	Shadow bool

	memory memory
}

// familyPlan is what was decided for one family of a node.
type familyPlan struct {
	*state.Share
	plan expand.Plan
	// short is by how many addresses the claims fell short as no pool has a free block,
	// kept by how many claims and publishing fell short as a write failed with an error.
	short, kept int
	failed      error
	// turns are the reclaims that Pacing allowed and that have not begun.
	turns int
}

// Reconcile reconciles one node, named by the request, with its pools and pods:
// observe, decide, offer, act, report.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Ledger.WaitReady(ctx); err != nil {
		return reconcile.Result{}, err
	}
	r.Awaiting.Looks(req.Name)
	defer r.Awaiting.Looked(req.Name)
	// 1. Observe.
	doubt := r.Blocks.resolveUnknown(ctx, req.Name)
	o, err := r.observe(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if r.Shadow {
		return r.dryRun(ctx, o), nil
	}
	// 2. Make sure there is something to decide on.
	if o, err = r.prepare(ctx, o); err != nil {
		return r.outcome(ctx, req.Name, err)
	}
	// 3. Decide.
	plans := r.decide(ctx, o)
	defer r.returnTurns(plans)
	// 4. Offer to pods what stays, then act. A node grows even if its offer fails.
	offerErr := r.offer(ctx, o, plans)
	err = r.carryOut(ctx, o, plans)
	// 5. Report, also what fails for good.
	if err == nil || r.lasts(o.Name, err) {
		err = errors.Join(err, r.report(ctx, o, plans))
	}
	if err = errors.Join(doubt, err, offerErr); err != nil {
		return r.outcome(ctx, o.Name, err)
	}
	r.memory.succeeded(o.Name)
	r.reportWrites(ctx, o.Name, nil)
	return reconcile.Result{RequeueAfter: r.requeueAfter(o, plans)}, nil
}

// carryOut acts on plans, and reports what blocks that leave wait for. It returns all that failed.
func (r *Reconciler) carryOut(ctx context.Context, o *observation, plans []familyPlan) error {
	var err error
	if len(plans) > 0 {
		if err = r.act(ctx, o, plans); err == nil {
			err = r.actOnWaits(ctx, o, plans)
		}
	}
	return errors.Join(o.failed, err)
}

// lasts reports whether err stands until a person changes something, or writes of the node
// have failed for long: people and schedulers should know then. While the API server
// is merely busy, reports would add to its load.
func (r *Reconciler) lasts(node string, err error) bool {
	return refusal.In(err) != nil || !lostRace(err) && r.memory.failing(node, r.Clock.Now()) >= retry.MaxBackoff
}

// prepare makes sure that a CiliumNode exists, or must not, and that the state of
// blocks and agent is known. It returns the node as observed after its writes.
func (r *Reconciler) prepare(ctx context.Context, o *observation) (*observation, error) {
	for range maxRepairs {
		repaired, err := r.repair(ctx, o)
		if err != nil {
			return o, err
		}
		if !repaired {
			return o, r.readRuns(ctx, o)
		}
		if o, err = r.observe(ctx, o.Name); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: it has needed %d repairs in a row", errStale, maxRepairs)
}

// repair takes one step of prepare, and reports whether it has written something.
func (r *Reconciler) repair(ctx context.Context, o *observation) (repaired bool, err error) {
	switch {
	case o.Node == nil:
		return r.nodeGone(ctx, o)
	case o.CiliumNode == nil:
		return r.ensureCiliumNode(ctx, o)
	}
	if restored, err := r.restoreOrphanedBlocks(ctx, o, o.CiliumNode); err != nil || restored {
		return restored, err
	}
	if err := r.awaitAdopted(ctx, o); err != nil {
		return false, err
	}
	return r.ensureReport(ctx, o)
}

var (
	// errStale means that the state behind the decision has changed.
	errStale = errors.New("the node has changed meanwhile")
	// errNotShown means that the watch lags behind a write that must be seen first.
	errNotShown = errors.New("the watch lags")
)

// lostRace reports whether err means that the state behind a decision has changed, which
// the next reconcile resolves.
func lostRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errStale) || errors.Is(err, ciliumnode.ErrRunsWithAnother)
}

// outcome distinguishes waits and lost races, which the next reconcile resolves, from
// failures.
func (r *Reconciler) outcome(ctx context.Context, node string, err error) (reconcile.Result, error) {
	r.reportWrites(ctx, node, err)
	switch {
	case refusal.In(err) != nil:
	case errors.Is(err, errNotShown):
		log.FromContext(ctx).V(1).Info("waiting for the watch", "reason", err.Error())
		return reconcile.Result{RequeueAfter: retry.NotShown}, nil
	case lostRace(err):
		log.FromContext(ctx).V(1).Info("lost a race, requeuing", "reason", err.Error())
		return reconcile.Result{RequeueAfter: r.memory.nextBackoff(node)}, nil
	}
	return reconcile.Result{}, err
}

// decide computes a plan for each family of the node.
func (r *Reconciler) decide(ctx context.Context, o *observation) []familyPlan {
	now := r.Clock.Now()
	if o.Node != nil && o.CiliumNode == nil && !o.gone() {
		return nil
	}
	r.forgetShares(o)
	if o.CiliumNode != nil {
		r.holdMoves(o, now)
	}
	var plans []familyPlan
	var idle [2][]string
	for i := range o.Shares {
		fo := &o.Shares[i]
		w := fo.Key(o.Name)
		if fo.Paused != "" {
			r.memory.remember(o, fo, expand.Memory{}) // changes meanwhile go unobserved
			continue
		}
		if !fo.State.Gone && o.CiliumNode != nil { // else nothing begins, and no turn is used up
			r.giveTurns(w, &fo.State, now)
		}
		fo.State.MayPark = mayPark(fo, plans)
		old := r.memory.recall(o, fo)
		plan, next := expand.Decide(now, fo.Policy, fo.State, old)
		// If no pool serves the node any more, its drains are no longer paced.
		turns := 0
		if len(fo.Pools) > 0 {
			turns = reclaims(plan)
		}
		if turns > 0 && !r.Pacing.Take(fo.Pools[0], turns, now) {
			turns, fo.State.ReclaimBudget = 0, 0 // another node took the budget first
			plan, next = expand.Decide(now, fo.Policy, fo.State, old)
		}
		r.memory.remember(o, fo, next)
		if len(next.IdleSince) > 0 {
			idle[fo.Family] = o.PoolsInService(fo.Family)
		}
		r.Metrics.decided(fo.Family, plan)
		r.Reporter.logPlan(ctx, fo, plan)
		plans = append(plans, familyPlan{Share: fo, plan: plan, turns: turns})
	}
	r.Pressure.SetIdle(o.Name, idle)
	r.Metrics.sized(o.Name, plans)
	return plans
}

// forgetShares drops what is remembered of families and Cilium pools that no longer concern
// the node.
func (r *Reconciler) forgetShares(o *observation) {
	for _, f := range ipalloc.Families() {
		if !o.Runs(f) {
			r.Metrics.forget(o.Name, f)
		}
	}
	for _, gone := range r.memory.forgetShares(o) {
		r.Pacing.KeepTurns(gone, nil)
		r.Metrics.waiting.forgetShare(gone)
		r.Events.Last.Changed(o.Name, planTopic(gone.Family, gone.CiliumPool), "")
	}
}

// mayPark reports whether a block of a share may be parked beside the plans for others of
// its node: one at a time.
func mayPark(fo *state.Share, plans []familyPlan) bool {
	return fo.State.MayPark && !slices.ContainsFunc(plans, func(p familyPlan) bool { return p.plan.Park.IsValid() })
}

func reclaims(plan expand.Plan) int {
	n := 0
	for _, d := range plan.Drain {
		if d.Reason == expand.Reclaim {
			n++
		}
	}
	return n
}

// requeueAfter is when to reconcile the node again without an event, or 0.
func (r *Reconciler) requeueAfter(o *observation, plans []familyPlan) time.Duration {
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	now := r.Clock.Now()
	for _, p := range plans {
		sooner(p.plan.RequeueAt)
	}
	if !o.Settled { // or the agent waits for a family that it did not run before
		sooner(o.Settles)
	}
	sooner(o.again)
	sooner(o.EndedUntil)
	if o.Awaits != "" {
		sooner(o.AwaitsUntil)
	}
	if r.Awaiting.Has(o.Name) || o.withheld {
		sooner(now.Add(awaitingBlocksRetry))
	}
	if at.IsZero() {
		return 0
	}
	return max(at.Sub(now), time.Millisecond)
}

// uid is the UID of the object that the agent reads.
func (o *observation) uid() types.UID {
	if o.CiliumNode == nil {
		return ""
	}
	return o.CiliumNode.UID
}

// forget drops what is known of a node that is gone.
func (r *Reconciler) forget(node string) {
	r.Ledger.ForgetCiliumNode(node)
	r.Pacing.ForgetNode(node)
	r.Awaiting.Forget(node)
	r.Events.Last.Forget(node)
	r.Events.ForgetWrites(writesOf(node))
	r.Pressure.SetIdle(node, [2][]string{})
	r.noteWithoutBlock(node, nil)
	r.memory.forget(node)
	r.Metrics.forgetShadow(node)
	for _, f := range ipalloc.Families() {
		r.Metrics.forget(node, f)
	}
}
