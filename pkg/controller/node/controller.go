// Package node assigns blocks to nodes, reclaims them, and keeps each CiliumNode in sync
// with the blocks of its node: observe, prepare, decide, offer, act, report.
package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pacing"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// maxRepairs bounds the repairs of one reconcile: a node needs two or three.
const maxRepairs = 4

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
	Shared      *common.Shared
	Clock       clock.PassiveClock
	// Routes announces blocks to the network; nil: the operator announces none.
	Routes Routes

	// OfferFamilies are the families that Nodes offer addresses of to pods.
	OfferFamilies []ipalloc.Family
	// SetsNoTaint: takes the shortage taint off Nodes, but never sets it, because the operator's
	// own Pod does not tolerate it.
	SetsNoTaint bool
	// Shadow: reports the plan without writing.
	Shadow bool

	memory memory
}

// Routes are the routes to the blocks of nodes.
type Routes interface {
	// Announce writes the routes of a node before addresses are published. It does not wait for long.
	Announce(ctx context.Context, node string)
	// Announces reports whether a node still has the route to a block.
	Announces(node string, cidr netip.Prefix) bool
}

// familyPlan is the decision for one family of a node.
type familyPlan struct {
	*state.Share
	plan expand.Plan
	// short is the number of addresses that the claims fell short as no pool has a free block, kept
	// the number that claims and publishing fell short as a write failed with an error.
	short, kept int
	failed      error
}

// Reconcile reconciles one node, named by the request, with its pools and pods:
// observe, prepare, decide, offer, act, report.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Ledger.WaitReady(ctx); err != nil {
		return reconcile.Result{}, err
	}
	r.Awaiting.Begin(req.Name)
	defer r.Awaiting.End(req.Name)
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
	memory := o.memory
	o, done, err := r.prepare(ctx, o)
	if err != nil {
		return r.resultOf(ctx, req.Name, memory, err)
	}
	// 3. Decide.
	plans := r.decide(ctx, o)
	// 4. Offer the remaining addresses to pods, then act. A node grows even if its offer fails.
	offerErr := r.offer(ctx, o, plans, done)
	if len(plans) > 0 {
		if err = r.act(ctx, o, plans, done); err == nil {
			err = r.actOnWaits(ctx, o, plans, done)
		}
	}
	if slices.ContainsFunc(plans, familyPlan.lacksReplacement) {
		r.Pacing.Release(o.Name, r.Clock.Now())
	}
	err = errors.Join(done.failed, err)
	// 5. Report, also lasting failures.
	if err == nil || o.Node == nil || memory.lasts(err, r.Clock.Now()) {
		err = errors.Join(err, r.report(ctx, o, plans))
	}
	if err = errors.Join(doubt, err, offerErr); err != nil {
		return r.resultOf(ctx, o.Name, memory, err)
	}
	memory.conflicts, memory.failing = 0, time.Time{}
	r.Reporter.reportWrites(ctx, o.Name, nil)
	return r.requeue(ctx, o, plans, done), nil
}

// outcome is the result of a reconcile's writes.
type outcome struct {
	failed error // writes that failed and did not stop the rest
	again  requeue
	// pollFor is a change without an event that the node waits for; "": none.
	pollFor string
}

// carryOn records a failed write that does not stop the rest. It returns err if the plan is out of
// date: then no more of it may be carried out.
func (done *outcome) carryOn(err error) error {
	if lostRace(err) {
		return err
	}
	done.failed = errors.Join(done.failed, err)
	return nil
}

// requeue is when to reconcile a node again without an event, and why. Zero: no time is set.
type requeue struct {
	at      time.Time
	because string
}

// by sets a time, unless an earlier one is set.
func (q *requeue) by(at time.Time, because string) {
	if !at.IsZero() && (q.at.IsZero() || at.Before(q.at)) {
		*q = requeue{at, because}
	}
}

// repairs are the repairs that a node may need before any decision, in this order.
var repairs = []struct {
	name string
	when func(*observation) bool
	// do returns the observation to go on with, or nil if it has written something and the node
	// must be observed again.
	do func(*Reconciler, context.Context, *observation, *outcome) (*observation, error)
}{
	{"recover what its pods use", func(o *observation) bool { return o.Node != nil }, (*Reconciler).recover},
	{"delete the CiliumNode of a Node that is gone", func(o *observation) bool { return o.Node == nil }, (*Reconciler).nodeGone},
	{"create the CiliumNode", func(o *observation) bool {
		return o.Node != nil && o.CiliumNode == nil && !o.paused() && len(o.Shares) > 0
	}, (*Reconciler).ensureCiliumNode},
	{"create blocks that the CiliumNode lists", func(o *observation) bool {
		return o.lives() && len(o.CiliumNode.Listed()) > 0
	}, func(r *Reconciler, ctx context.Context, o *observation, done *outcome) (*observation, error) {
		restored, err := r.restoreOrphanedBlocks(ctx, o, o.CiliumNode, done)
		if restored {
			return nil, err
		}
		return o, err
	}},
	{"wait for adopted blocks", (*observation).isUnreported, (*Reconciler).awaitAdopted},
	{"ask the agent for a report", func(o *observation) bool {
		return o.isUnreported() && !o.Adopting && o.Settled && o.memory.requested != o.CiliumNode.UID
	}, (*Reconciler).ensureReport},
	{"read what the agent runs with", func(o *observation) bool {
		return o.lives() && len(o.Blocks) > 0 && slices.ContainsFunc(o.Shares, lacksAssigned)
	}, (*Reconciler).readRuns},
}

func (o *observation) lives() bool { return o.Node != nil && o.CiliumNode != nil }

// isUnreported reports whether addresses are published to an agent that has not reported the ones
// that it uses.
func (o *observation) isUnreported() bool {
	return o.lives() && !o.paused() && len(o.CiliumNode.Used) == 0 && len(o.CiliumNode.Pool) > 0
}

// lacksAssigned reports whether a Node names no podCIDR of a family.
func lacksAssigned(share state.Share) bool {
	return share.State.BlockAssignment != nil && len(share.State.BlockAssignment.Assigned) == 0
}

// prepare repairs a node until no repair is left. It returns the node as observed after its last
// write, and the result of its last repairs.
func (r *Reconciler) prepare(ctx context.Context, o *observation) (*observation, *outcome, error) {
	for range maxRepairs {
		next, done := o, &outcome{}
		for _, repair := range repairs {
			if !repair.when(next) {
				continue
			}
			var err error
			if next, err = repair.do(r, ctx, next, done); err != nil {
				return nil, nil, err
			}
			if next == nil {
				log.FromContext(ctx).V(1).Info("repaired the node", "repair", repair.name)
				break
			}
		}
		if next != nil {
			return next, done, nil
		}
		var err error
		if o, err = r.observe(ctx, o.Name); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("%w: it has needed %d repairs in a row", errStale, maxRepairs)
}

var (
	// errStale means that the state behind the decision has changed.
	errStale = errors.New("the node has changed meanwhile")
	// errCacheBehind means that the watch lags behind a write that must be seen first.
	errCacheBehind = errors.New("the watch lags")
	// errUnprotected means that a block could go at any moment.
	errUnprotected = errors.New("not published")
)

// lostRace reports whether err means that the state behind a decision has changed, which
// the next reconcile resolves.
func lostRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errStale) || errors.Is(err, ciliumnode.ErrRunsWithAnother)
}

// resultOf distinguishes waits and lost races, which the next reconcile resolves, from
// failures.
func (r *Reconciler) resultOf(ctx context.Context, node string, memory *nodeState, err error) (reconcile.Result, error) {
	r.Reporter.reportWrites(ctx, node, err)
	switch {
	case common.RefusalIn(err) != nil:
	case errors.Is(err, errCacheBehind), errors.Is(err, errUnprotected):
		log.FromContext(ctx).V(1).Info("waiting for the watch", "reason", err.Error())
		return reconcile.Result{RequeueAfter: max(common.WatchRetry, memory.nextBackoff())}, nil
	case lostRace(err):
		log.FromContext(ctx).V(1).Info("lost a race, requeuing", "reason", err.Error())
		return reconcile.Result{RequeueAfter: memory.nextBackoff()}, nil
	}
	r.Pacing.Release(node, r.Clock.Now()) // err may last
	return reconcile.Result{}, err
}

// decide computes a plan for each family of the node.
func (r *Reconciler) decide(ctx context.Context, o *observation) []familyPlan {
	now := r.Clock.Now()
	if o.Node != nil && o.CiliumNode == nil && !o.gone() {
		return nil
	}
	r.forgetShares(o)
	shares := slices.Clone(o.Shares) // with the rates and holds of this moment
	for i := range shares {
		shares[i].State.Blocks = slices.Clone(shares[i].State.Blocks)
		o.setStuck(&shares[i], now)
	}
	if o.CiliumNode != nil {
		r.Pacing.Pace(o.Name, shares, r.Ledger, r.PoolOf, now)
	} else { // no drain begins
		r.Pacing.Release(o.Name, now)
	}
	var plans []familyPlan
	var idle [2][]string
	drains := slices.ContainsFunc(o.Blocks, func(b crd.Block) bool { return b.Phase == ipalloc.Draining })
	for i := range shares {
		fo, memory := &shares[i], o.memory.of(o, &shares[i])
		if fo.Paused != "" {
			*memory = expand.Memory{} // changes meanwhile go unobserved
			continue
		}
		oneAtATime(&fo.State, plans, drains)
		plan, next := expand.Decide(now, fo.Policy, fo.State, *memory)
		// If no pool serves the node any more, its drains are no longer paced.
		if blocks := reclaims(plan); len(blocks) > 0 && len(fo.Pools) > 0 && !r.Pacing.Reclaim(o.Name, blocks, fo.Pools[0], now) {
			fo.State.ReclaimBudget = 0 // another node took the budget first
			plan, next = expand.Decide(now, fo.Policy, fo.State, *memory)
		}
		*memory = next
		if len(next.IdleSince) > 0 {
			idle[fo.Family] = o.PoolsInService(fo.Family)
		}
		r.Metrics.decided(fo.Family, plan)
		r.Reporter.logPlan(ctx, fo, plan)
		drains = drains || len(plan.Drain) > 0
		plans = append(plans, familyPlan{Share: fo, plan: plan})
	}
	r.Pressure.SetIdle(o.Name, idle)
	r.Metrics.sized(o.Name, plans)
	return plans
}

// lacksReplacement reports whether a drain cannot begin, as the claims that would replace its block fell
// short.
func (p familyPlan) lacksReplacement() bool {
	return p.short+p.kept > 0 && slices.ContainsFunc(p.plan.Waits, func(w expand.Wait) bool { return w.For == expand.WaitReplacement })
}

// oneAtATime lets one block of a node be compacted, and one be parked, at a time. drains: the node has a
// draining block.
func oneAtATime(s *expand.State, plans []familyPlan, drains bool) {
	own := slices.ContainsFunc(s.Blocks, func(b expand.Block) bool { return b.Phase == ipalloc.Draining })
	s.MayCompact = s.MayCompact && (own || !drains)
	s.MayPark = s.MayPark && !slices.ContainsFunc(plans, func(p familyPlan) bool { return p.plan.Park.IsValid() })
}

// forgetShares drops the memory of families and Cilium pools that no longer concern the node: a block
// that comes later must not be taken for an earlier one.
func (r *Reconciler) forgetShares(o *observation) {
	for _, f := range ipalloc.Families() {
		runs := o.Runs(f)
		if o.memory.runs[f] && !runs {
			r.Metrics.Forget(o.Name, f)
		}
		o.memory.runs[f] = runs
	}
	if o.CiliumNode != nil && !o.CiliumNode.NeverReadByAgent() {
		o.memory.first = firstBlocks{}
	}
	maps.DeleteFunc(o.memory.stuck, func(uid types.UID, _ stuckWrite) bool {
		return uid != o.uid() && !slices.ContainsFunc(o.Blocks, func(b crd.Block) bool { return b.UID == uid })
	})
	o.memory.shares = slices.DeleteFunc(o.memory.shares, func(s shareState) bool {
		if slices.ContainsFunc(o.Shares, func(share state.Share) bool { return share.CiliumPool == s.ciliumPool }) {
			return false
		}
		r.Metrics.drains.forget(o.Name, func(share state.ShareKey) bool { return share.CiliumPool == s.ciliumPool })
		for _, f := range ipalloc.Families() {
			r.Events.Last.Changed(o.Name, planTopics[f]+s.ciliumPool, "")
		}
		return true
	})
}

func reclaims(plan expand.Plan) (blocks []netip.Prefix) {
	for _, d := range plan.Drain {
		if d.Reason.IsReclaim() {
			blocks = append(blocks, d.CIDR)
		}
	}
	return blocks
}

// requeue returns when to reconcile the node again without an event.
func (r *Reconciler) requeue(ctx context.Context, o *observation, plans []familyPlan, done *outcome) reconcile.Result {
	again := done.again
	for _, p := range plans {
		again.by(p.plan.RequeueAt, "the plan goes on")
	}
	if !o.Settled { // or the agent waits for a family that it did not run before
		again.by(o.Settles, "the agent settles")
	}
	again.by(o.EndedUntil, "the addresses of ended pods are free")
	if o.Awaits != "" {
		again.by(o.AwaitsUntil, "the wait for labels is over")
	}
	now := r.Clock.Now()
	if r.Awaiting.Has(o.Name) {
		again.by(now.Add(common.LongestWait), "it waits for a free block")
	}
	if done.pollFor != "" {
		again.by(now.Add(common.LongestWait), done.pollFor)
	}
	if again.at.IsZero() {
		return reconcile.Result{}
	}
	after := max(again.at.Sub(now), time.Millisecond)
	log.FromContext(ctx).V(1).Info("reconciling again", "after", after.String(), "because", again.because)
	return reconcile.Result{RequeueAfter: after}
}

// uid is the UID of the object that the agent reads.
func (o *observation) uid() types.UID {
	if o.CiliumNode == nil {
		return ""
	}
	return o.CiliumNode.UID
}

// forget drops the memory of a node that is gone.
func (r *Reconciler) forget(node string) {
	r.Ledger.ForgetCiliumNode(node)
	r.Pacing.Release(node, r.Clock.Now())
	r.Awaiting.Forget(node)
	r.Events.Last.Forget(node)
	r.Events.ForgetWrites(writesOf + node)
	r.Pressure.SetIdle(node, [2][]string{})
	if r.Unscheduled != nil {
		r.Unscheduled.SetWithoutBlock(node, false)
	}
	r.memory.forget(node)
	r.Metrics.shadow.DeletePartialMatch(prometheus.Labels{"node": node})
	for _, f := range ipalloc.Families() {
		r.Metrics.Forget(node, f)
	}
}
