package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// Reasons of the condition v1alpha1.NodeAddressShortage.
const (
	reasonLimitReached  = "LimitReached"
	reasonBlockFull     = "BlockFull"
	reasonMoves         = "AddressMoves"
	reasonRunsWithOther = "AgentRunsWithAnother"
	reasonWriteFails    = "WriteFails"
	reasonPaused        = "Paused"
	reasonNoPool        = "NoPool"
	reasonNotServed     = "NotServed"
	reasonEnough        = "EnoughAddresses"
)

// shortage is the lack of addresses of a node.
type shortage struct {
	// unmet means that pods wait for an address; otherwise only the reserve that the
	// pool requires is missing.
	unmet bool
	// someOnly: only pods that ask for a Cilium pool, or for the address of their name, wait. Others can
	// start.
	someOnly bool
	reason   string
	message  string
	// of are the families and Cilium pools that lack addresses.
	of []string
}

// report reports, to users and schedulers, the shortage of a node and the obstacles to its drains.
func (r *Reconciler) report(ctx context.Context, o *observation, plans []familyPlan) error {
	if r.Unscheduled != nil { // other nodes return an idle block for it
		r.Unscheduled.SetWithoutBlock(o.Name, slices.ContainsFunc(plans, familyPlan.lacksFirstBlock))
	}
	if o.Node == nil {
		r.Metrics.drains.forget(o.Name, func(state.ShareKey) bool { return true })
		r.Metrics.shortages.DeletePartialMatch(prometheus.Labels{"node": o.Name})
		r.Metrics.offered.DeletePartialMatch(prometheus.Labels{"node": o.Name}) // its blocks cool down for long
	}
	if !r.Paused {
		r.Reporter.reportAwaited(ctx, o)
	}
	unselected := !o.OtherIPAM && o.Awaits == "" && r.Unselected(o.Node)
	r.Metrics.withoutPool(o.Name, unselected || slices.ContainsFunc(o.Unserved, func(u state.Unserved) bool { return u.OfAgent && !u.AtRestart }))
	if o.Node == nil || o.OtherIPAM || o.Awaits != "" {
		r.Awaiting.Forget(o.Name)
		if o.Node == nil || !o.OtherIPAM {
			return nil
		}
		// The other IPAM answers for the shortage now.
		r.Metrics.shortages.DeletePartialMatch(prometheus.Labels{"node": o.Name})
		r.Reporter.sendShortage(o.Node, nil, nil)
		return r.setShortage(ctx, o, nil, nil)
	}
	plans = append(plans, o.pausedPlans(r.Clock.Now())...)
	lack := lacking(plans)
	r.reportPlans(o, plans, lack)
	r.Reporter.sendOnce(o.Node, topicFamily, event.ReasonFamilyNotRun, o.familyDisabled())
	r.Reporter.sendOnce(o.Node, topicBad, event.ReasonCiliumNodeUnreadable, o.unreadable())
	if unselected {
		lack = o.unselected(lack)
	}
	lack = withUnserved(lack, o.Unserved)
	r.Reporter.sendShortage(o.Node, lack, func() string { return cooldowns(r.Ledger, plans) })
	r.Reporter.sendUnservedPods(o)
	return r.setShortage(ctx, o, plans, lack)
}

// reportPlans reports the shortages and waits of the plans, and has the node woken once a pool has
// a block for it.
func (r *Reconciler) reportPlans(o *observation, plans []familyPlan, lack *shortage) {
	now := r.Clock.Now()
	poolOf := func(w expand.Wait) string { // "" if the block is not known
		b, _ := o.block(w.CIDR)
		return b.Pool
	}
	var short [2]int
	missed := o.replacing // the pools with free blocks that would help
	for _, p := range plans {
		short[p.Family] += p.unmet()
		if p.short > 0 && p.Paused == "" {
			missed[p.Family] = append(missed[p.Family], p.Pools...)
		}
		setUnless(0, r.Metrics.shortages, short[p.Family], o.Name, p.Family.String())
		if p.Paused == "" {
			r.Metrics.drains.set(&p, o.Name, poolOf, now)
		} else {
			r.Metrics.drains.pause(o.Name, p.Key(o.Name))
		}
	}
	starves := lack != nil && lack.unmet || slices.ContainsFunc(plans, familyPlan.lacksFirstBlock)
	r.Awaiting.Set(o.Name, lack != nil || len(missed[0])+len(missed[1]) > 0, starves, missed)
}

// pausedPlans are plans that are not carried out: the holdings and needs of the paused families of
// a node.
func (o *observation) pausedPlans(now time.Time) []familyPlan {
	var plans []familyPlan
	for i := range o.Shares {
		if fo := &o.Shares[i]; fo.Paused != "" {
			plan, _ := expand.Decide(now, fo.Policy, asPublished(fo.State), expand.Memory{})
			plans = append(plans, familyPlan{Share: fo, plan: plan, short: plan.Claim.Addresses})
		}
	}
	return plans
}

// asPublished is a state that leaves no more addresses to publish.
func asPublished(s expand.State) expand.State {
	s.Blocks = slices.Clone(s.Blocks)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		b.Usable = slices.DeleteFunc(slices.Clone(b.Usable), func(a netip.Addr) bool {
			_, published := s.Pool[a]
			return !published
		})
		if !b.Listed {
			b.Size = 0
		}
	}
	return s
}

// waiting is the number of pods that wait for an address on the node.
func (p *familyPlan) waiting() int {
	return p.plan.Demand - p.plan.Capacity - p.plan.ServedElsewhere
}

// lacks is the number of addresses the node needs and cannot get. If it is paused, the reserve does
// not count.
func (p *familyPlan) lacks() int {
	switch {
	case p.Paused != "":
		return max(0, p.waiting())
	case p.State.RunsWithAnother(): // its agent does not start again without a block
		return max(1, p.plan.Shortage)
	}
	return max(p.plan.Shortage, p.short+p.kept)
}

// unmet is the number of addresses pods wait for and cannot get; the reserve does not count.
func (p *familyPlan) unmet() int {
	if p.lacks() == 0 {
		return 0
	}
	return max(0, p.plan.Shortage, p.waiting()-max(0, p.plan.Claim.Addresses-p.short-p.kept))
}

// lacksFirstBlock reports whether the node waits for the first block of a family.
func (p familyPlan) lacksFirstBlock() bool {
	return p.short > 0 && len(p.State.Blocks) == 0 && !p.OfPods
}

// isOfPod reports whether the plan is for the address of one pod's name.
func (p *familyPlan) isOfPod() bool { return crd.PodOfPool(p.CiliumPool) != "" }

func lacking(plans []familyPlan) *shortage {
	var parts []string
	s := &shortage{someOnly: true}
	for _, p := range plans {
		if p.lacks() == 0 {
			continue
		}
		reason, message := p.lack()
		parts = append(parts, message)
		s.of = append(s.of, p.what())
		if s.reason == "" || s.reason == reasonMoves || reason == v1alpha1.NodePoolsExhausted || reason == reasonWriteFails {
			s.reason = reason
		}
		s.unmet, s.someOnly = s.unmet || p.unmet() > 0, s.someOnly && (p.unmet() == 0 || p.OfPods)
	}
	if len(parts) == 0 {
		return nil
	}
	s.message = suggest.Sentences(parts)
	return s
}

// what names the family and the Cilium pool of a plan.
func (p *familyPlan) what() string {
	if p.CiliumPool != "" {
		return p.Family.String() + " of Cilium's pool " + p.CiliumPool
	}
	return p.Family.String()
}

// lack describes why one family of a node lacks addresses, and their number.
func (p *familyPlan) lack() (reason, message string) {
	what := p.what()
	switch {
	case p.Paused != "":
		return reasonPaused, fmt.Sprintf("%s: %d more addresses needed, and the node gets none: %s", what, p.lacks(), p.Paused)
	case p.failed != nil:
		return reasonWriteFails, fmt.Sprintf("%s: %d more addresses wanted, and the operator cannot give them: %s", what, p.lacks(), termsafe.Line(p.failed.Error()))
	case p.short > 0 && len(p.Pools) > 0 && p.isOfPod():
		return reasonMoves, fmt.Sprintf("%s: the address that is pinned to pod %s cannot come here yet: kubectl get podippins", what, p.Pools[0].Pod)
	case p.short > 0:
		return v1alpha1.NodePoolsExhausted, fmt.Sprintf("%s: %d more addresses wanted and no pool that serves this node (%s) has a free block",
			what, p.short, poolNames(p))
	case p.State.RunsWithAnother():
		return reasonRunsWithOther, fmt.Sprintf("%s: the agent runs with podCIDR %s, which is no block of this node, so the node is assigned no block", what, p.State.BlockAssignment.Runs[0])
	case p.State.BlockAssignment != nil && p.State.BlockAssignment.SingleBlock:
		return reasonBlockFull, fmt.Sprintf("%s: %d more addresses needed than the block of this node has, and a Node gets no second one in kubernetes mode",
			what, p.plan.Shortage)
	}
	return reasonLimitReached, fmt.Sprintf("%s: %d more addresses needed than maxBlocksPerNode, the CiliumNode's max-allocate or --max-addresses-per-node allow",
		what, p.plan.Shortage)
}

// poolNames lists the pools of a node, each with the reason if it assigns no block.
func poolNames(p *familyPlan) string {
	if len(p.Pools) == 0 {
		return "none"
	}
	var names []string
	for _, pool := range p.Pools {
		name := pool.Name
		switch _, gives := pool.Cut(p.Family); {
		case pool.Frozen():
			name += ": invalid"
		case pool.Paused:
			name += ": paused"
		case !gives:
			name += ": no open CIDR"
		}
		names = append(names, name)
	}
	return suggest.First(5, names)
}

// unselected reports a Node that no pool selects, in addition to the shortage of its blocks. With
// addresses from before, or from another IPAM, its pods keep running: no need is unmet until these
// run out.
func (o *observation) unselected(lack *shortage) *shortage {
	none := o.CiliumNode == nil || len(o.CiliumNode.Named())+len(o.CiliumNode.NonCanonical) == 0
	return &shortage{
		unmet: none || lack != nil && lack.unmet, reason: reasonNoPool,
		message: "no PodIPPool selects this node, so it gets no block",
	}
}

// withUnserved adds to a shortage the node's requests that no PodIPPool serves.
func withUnserved(lack *shortage, unserved []state.Unserved) *shortage {
	if len(unserved) == 0 {
		return lack
	}
	var says []string
	if lack == nil {
		lack = &shortage{someOnly: true, reason: reasonNotServed}
	} else {
		says = append(says, lack.message)
	}
	for i := range unserved {
		u := &unserved[i]
		if !lack.unmet && !u.AtRestart {
			lack.unmet, lack.someOnly, lack.reason = true, !u.OfAgent, reasonNotServed
		} else if u.OfAgent && !u.AtRestart {
			lack.someOnly = false
		}
		says = append(says, u.Says)
	}
	lack.message = suggest.Sentences(says)
	return lack
}

// podsTold bounds the pods of a node that get an event about one unserved Cilium pool. Pods of one
// workload have the same fault.
const podsTold = 10

// sendUnservedPods reports to pods, once each, that no PodIPPool serves the Cilium pool that they
// ask for on their node. A pod that the limit of events leaves out is told by a later reconcile.
func (r *Reporter) sendUnservedPods(o *observation) {
	pods, was := o.UnservedPods(), strings.Fields(r.Events.Last.Text(o.Name, topicUnserved))
	var told []string
	for _, u := range o.Unserved {
		isNew := func(name string) bool { return !slices.Contains(was, string(pods[name].UID)) }
		names := slices.DeleteFunc(slices.Clone(u.Pods), isNew)
		names = append(names, slices.DeleteFunc(slices.Clone(u.Pods), func(name string) bool { return !isNew(name) })...)
		for _, name := range names[:min(podsTold, len(names))] {
			namespace, pod, _ := strings.Cut(name, "/")
			about := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod, UID: pods[name].UID}}
			if !isNew(name) || slices.Contains(told, string(about.UID)) ||
				r.Events.SendOften(about, o.Node, event.ReasonCiliumPoolNotServed, pods[name].Says) {
				told = append(told, string(about.UID))
			}
		}
	}
	r.Events.Last.Changed(o.Name, topicUnserved, strings.Join(told, " "))
}

// cooldownPools bounds the pools of each family that an event about a shortage describes.
const cooldownPools = 3

// cooldowns describes the full pools that could serve the node's shortage: the number of cooling
// blocks, and the end of their cooldown. The condition of the Node does not say so: each block that
// comes or goes would be a write about every node that starves.
func cooldowns(ledger *state.Ledger, plans []familyPlan) string {
	var text string
	for _, p := range plans {
		for i := 0; i < min(len(p.Pools), cooldownPools) && p.short > 0; i++ {
			pool := p.Pools[i]
			text += fmt.Sprintf(". Pool %s (%s): %s", pool.Name, p.Family, ledger.Cooldowns(pool, p.Family))
		}
	}
	return text
}

// advice is the advice about a shortage, by its reason.
var advice = map[string]string{
	v1alpha1.NodePoolsExhausted: "Add a CIDR to a pool of this node or another pool for it, or move pods away",
	reasonMoves:                 "The condition of the pin says why. Wait until another node has returned the address; if that node is off, delete its Node",
	reasonPaused:                "End the pause, or move pods away",
	reasonLimitReached:          "Raise that limit, or move pods away",
	reasonBlockFull:             "Move pods away; Nodes that need more addresses must join with a pool of larger blocks",
	reasonNoPool: "Widen the nodeSelector of a pool, add a pool, or label the node; where Cilium does not run, set the label " +
		v1alpha1.OptOutLabel + "=true",
	reasonNotServed:     "Add a pool that has it and selects this node, or correct what asks for it: Cilium's settings, or annotations of pods and namespaces",
	reasonWriteFails:    "Let the operator's write pass, or correct the block that is named there",
	reasonRunsWithOther: "Drain the Node, stop its kubelet for a minute, and delete the Node; or, if the podCIDR is no other node's, write it into the Node's annotation",
}

// familyDisabled describes the families that pools offer the node and its agent does not run.
func (o *observation) familyDisabled() string {
	var parts []string
	held := "one that it holds stays until it is drained"
	if o.CiliumNode != nil && o.CiliumNode.BlockAssignment != nil {
		held = "the agent returns one that it holds"
	}
	for i := range o.Shares {
		if f := &o.Shares[i]; o.CiliumNode.FamilyDisabled(f.Family) && len(f.Pools) > 0 {
			parts = append(parts, fmt.Sprintf("the agent does not run %s, which pool %s has: no %s block is claimed for this node, and %s",
				f.Family, f.Ruling(), f.Family, held))
		}
	}
	return suggest.Sentences(parts)
}
