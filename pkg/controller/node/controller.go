// Package node assigns blocks to nodes, reclaims them, and keeps each CiliumNode in sync
// with the blocks of its node: observe, prepare, decide, offer, act, report.
package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pacing"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// maxPreparations bounds the observations of one reconcile that preparations need: a node needs two or three.
const maxPreparations = 4

// Reconciler assigns blocks to nodes, reclaims them, and keeps each CiliumNode in
// sync with the node's blocks.
type Reconciler struct {
	// Cluster is everything known about the cluster, and how to read it.
	Cluster state.Cluster
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
	Counters    *common.Counters
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

	memories nodeMemories
}

// Routes are the routes to the blocks of nodes.
type Routes interface {
	// Announce writes the routes of a node before addresses are published. It does not wait for long.
	Announce(ctx context.Context, node string)
	// Announces reports whether a node still has the route to a block.
	Announces(node string, cidr netip.Prefix) bool
}

// Reconcile reconciles one node, named by the request, with its pools and pods:
// observe, prepare, decide, offer, act, report. docs/contributing/architecture.md#act says what a crash after each
// write leaves.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Cluster.Ledger.WaitClaimable(ctx); err != nil {
		return reconcile.Result{}, err
	}
	r.Cluster.Awaiting.Begin(req.Name)
	defer r.Cluster.Awaiting.End(req.Name)
	if !r.Cluster.Ledger.Ready() {
		return r.claimFirst(ctx, req.Name)
	}
	// 1. Observe.
	doubt := r.Blocks.resolveUnknown(ctx, req.Name)
	o, err := r.observe(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if r.Shadow {
		return r.reportShadow(ctx, o), nil
	}
	// 2. Make sure there is something to decide on.
	memory := o.memory
	o, result, err := r.prepare(ctx, o)
	if err != nil {
		return r.resultOf(ctx, req.Name, memory, err)
	}
	// 3. Decide.
	decisions := r.decide(ctx, o)
	// 4. Offer the remaining addresses to pods, then act. A node grows even if its offer fails.
	offerErr := r.offer(ctx, o, decisions, result)
	if offerErr != nil {
		decisions = withoutMarks(decisions)
	}
	outcomes, err := r.act(ctx, o, decisions, result)
	if err == nil {
		err = r.reportObstacles(ctx, o, decisions, result)
	}
	if lacksReplacement(decisions, outcomes) {
		r.Pacing.GiveBack(o.Name, r.Clock.Now())
	}
	err = errors.Join(result.failed, err)
	// 5. Report, also lasting failures.
	if err == nil || o.Node == nil || memory.noteFailure(err, r.Clock.Now()) {
		err = errors.Join(err, r.report(ctx, o, decisions, outcomes, &result.next))
	}
	if err = errors.Join(doubt, err, offerErr); err != nil {
		return r.resultOf(ctx, o.Name, memory, err)
	}
	memory.succeeded()
	r.Reporter.reportWrites(ctx, o.Name, nil)
	return r.requeue(ctx, o, decisions, result), nil
}

// claimFirst claims and publishes the first blocks of a new node while pods have yet to be read: its agent cannot start
// without them. The plan of such a node has no other step. Everything else waits for pods, also reports: then the node
// is reconciled again.
func (r *Reconciler) claimFirst(ctx context.Context, name string) (reconcile.Result, error) {
	if r.Shadow || !r.Cluster.Ledger.Facts(name).IsNew() {
		return reconcile.Result{}, nil
	}
	doubt := r.Blocks.resolveUnknown(ctx, name)
	o, err := r.observe(ctx, name)
	if err != nil || o.Node == nil || !o.IsNew() {
		return reconcile.Result{}, err
	}
	decisions := r.decide(ctx, o)
	result := &result{}
	_, err = r.act(ctx, o, decisions, result)
	if err = errors.Join(doubt, result.failed, err); err != nil {
		return r.resultOf(ctx, name, o.memory, err)
	}
	return r.requeue(ctx, o, decisions, result), nil
}

// result is the result of a reconcile's writes.
type result struct {
	failed error // writes that failed and did not stop the rest
	next   wakeup
	// pollFor is a change without an event that the node waits for; "": none.
	pollFor string
}

// record records a failed write that does not stop the rest. It returns err if the plan is out of
// date: then no more of it may be carried out.
func (result *result) record(err error) error {
	if lostRace(err) {
		return err
	}
	result.failed = errors.Join(result.failed, err)
	return nil
}

// wakeup is when to reconcile a node again without an event, and why. Zero: no time is set.
type wakeup struct {
	due     time.Time
	because string
}

// noLaterThan sets a time, unless an earlier one is set.
func (q *wakeup) noLaterThan(due time.Time, because string) {
	if !due.IsZero() && (q.due.IsZero() || due.Before(q.due)) {
		*q = wakeup{due, because}
	}
}

// preparations are the steps that a node may need before any decision, in this order.
var preparations = []struct {
	name string
	when func(*observation) bool
	// run returns the observation to go on with, or nil: see prepare.
	run func(*Reconciler, context.Context, *observation, *result) (*observation, error)
}{

	{"recover what its pods use", func(o *observation) bool { return o.Node != nil }, (*Reconciler).recoverAfterRestore},

	{"delete the CiliumNode of a Node that is gone", func(o *observation) bool { return o.Node == nil }, (*Reconciler).nodeGone},

	{"create the CiliumNode", func(o *observation) bool {
		return o.Node != nil && o.CiliumNode == nil && !o.unchangeable() && len(o.Shares) > 0
	}, (*Reconciler).ensureCiliumNode},
	{"create blocks that the CiliumNode lists", func(o *observation) bool {
		return o.lives() && len(o.CiliumNode.ListedInAnyPool()) > 0
	}, func(r *Reconciler, ctx context.Context, o *observation, result *result) (*observation, error) {
		restored, err := r.restoreOrphanedBlocks(ctx, o, o.CiliumNode, result)
		if restored {
			return nil, err
		}
		return o, err
	}},
	{"wait for adopted blocks", (*observation).publishedUnreported, (*Reconciler).awaitAdopted},
	{"ask the agent for a report", func(o *observation) bool {
		return o.publishedUnreported() && o.Standing.Kind != state.Adopting && o.Settled && o.memory.probed != o.CiliumNode.UID
	}, (*Reconciler).ensureProbe},
	{"read what the agent runs with", func(o *observation) bool {
		return o.lives() && len(o.Blocks) > 0 && slices.ContainsFunc(o.Shares, lacksAssigned)
	}, (*Reconciler).readRuns},
}

func (o *observation) lives() bool { return o.Node != nil && o.CiliumNode != nil }

// publishedUnreported reports whether addresses are published to an agent that has not reported the ones
// that it uses.
func (o *observation) publishedUnreported() bool {
	return o.lives() && !o.unchangeable() && len(o.CiliumNode.Used) == 0 && len(o.CiliumNode.Published()) > 0
}

// lacksAssigned reports whether a Node names no podCIDR of a family.
func lacksAssigned(share state.Share) bool {
	return share.State.BlockAssignment != nil && len(share.State.BlockAssignment.Assigned) == 0
}

// prepare runs the preparations that a node needs, until none writes anything. One that has written something
// returns no observation, and the node is observed again. prepare returns the node as observed after the last
// write, and the result of the last preparations.
func (r *Reconciler) prepare(ctx context.Context, o *observation) (*observation, *result, error) {
	for range maxPreparations {
		next := o
		result := &result{}
		for _, preparation := range preparations {
			if !preparation.when(next) {
				continue
			}
			var err error
			if next, err = preparation.run(r, ctx, next, result); err != nil {
				return nil, nil, err
			}
			if next == nil {
				log.FromContext(ctx).V(1).Info("repaired the node", "repair", preparation.name)
				break
			}
		}
		if next != nil {
			return next, result, nil
		}
		var err error
		if o, err = r.observe(ctx, o.Name); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("%w: it has needed %d repairs in a row", errStale, maxPreparations)
}

// resultOf distinguishes waits and lost races, which the next reconcile resolves, from
// failures.
func (r *Reconciler) resultOf(ctx context.Context, node string, memory *nodeMemory, err error) (reconcile.Result, error) {
	r.Reporter.reportWrites(ctx, node, err)
	refused := common.RefusalIn(err) != nil
	if !refused && (errors.Is(err, errCacheBehind) || errors.Is(err, errUnprotected)) {
		log.FromContext(ctx).V(1).Info("waiting for the watch", "reason", err.Error())
		return reconcile.Result{RequeueAfter: max(common.WatchRetry, memory.nextBackoff())}, nil
	}
	if !refused && lostRace(err) {
		log.FromContext(ctx).V(1).Info("lost a race, requeuing", "reason", err.Error())
		return reconcile.Result{RequeueAfter: memory.nextBackoff()}, nil
	}
	r.Pacing.GiveBack(node, r.Clock.Now()) // err may last
	return reconcile.Result{}, err
}

// requeue returns when to reconcile the node again without an event.
func (r *Reconciler) requeue(ctx context.Context, o *observation, decisions []decision, result *result) reconcile.Result {
	next := result.next
	for _, d := range decisions {
		next.noLaterThan(d.plan.RequeueAt, "the plan goes on")
	}
	if !o.Settled { // or the agent waits for a family that it did not run before
		next.noLaterThan(o.Settles, "the agent settles")
	}
	next.noLaterThan(o.EndedUntil, "the addresses of ended pods are free")
	if o.Standing.Kind == state.AwaitsLabels {
		next.noLaterThan(o.Standing.Until, "the wait for labels is over")
	}
	now := r.Clock.Now()
	for _, failed := range o.memory.unwritable {
		if now.Before(failed.triedAgain()) { // otherwise this plan has tried it
			next.noLaterThan(failed.triedAgain(), "a failed write is tried again")
		}
	}
	if r.Cluster.Awaiting.Has(o.Name) {
		next.noLaterThan(now.Add(common.LongestWait), "it waits for a free block")
	}
	if result.pollFor != "" {
		next.noLaterThan(now.Add(common.LongestWait), result.pollFor)
	}
	if next.due.IsZero() {
		return reconcile.Result{}
	}
	wait := max(next.due.Sub(now), time.Millisecond)
	log.FromContext(ctx).V(1).Info("reconciling again", "after", wait.String(), "because", next.because)
	return reconcile.Result{RequeueAfter: wait}
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
	r.Cluster.Ledger.ForgetCiliumNode(node)
	r.Pacing.GiveBack(node, r.Clock.Now())
	r.Cluster.Awaiting.Forget(node)
	r.Events.Last.Forget(node)
	r.Events.ForgetResult(writesOf + node)
	r.Pressure.SetIdle(node, [2][]string{})
	if r.Cluster.Unscheduled != nil {
		r.Cluster.Unscheduled.SetWithoutBlock(node, false)
	}
	r.memories.forget(node)
	r.Metrics.shadow.DeletePartialMatch(prometheus.Labels{"node": node})
	for _, f := range ipalloc.Families() {
		r.Metrics.Forget(node, f)
	}
}
