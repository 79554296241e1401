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
	// podsWait means that pods wait for an address; otherwise only the reserve that the
	// pool requires is missing.
	podsWait bool
	// someOnly: only pods that ask for a Cilium pool, or for the address of their name, wait. Others can
	// start.
	someOnly bool
	reason   string
	message  string
	// shares are the families and Cilium pools that lack addresses.
	shares []string
}

// account is a share of a node, with the balance of its addresses after the writes of its plan.
type account struct {
	*state.Share
	plan expand.Plan
	outcome
	balance expand.Balance
}

func newAccount(share *state.Share, plan expand.Plan, out outcome) account {
	return account{share, plan, out, expand.BalanceOf(&share.State, plan, out.Shortfall, share.Standing.MayChange())}
}

// accounts returns the accounts of the node's shares: of decisions with their outcomes, and of the shares that are
// paused.
func (o *observation) accounts(decisions []decision, outcomes []outcome, now time.Time) []account {
	var accounts []account
	for i := range decisions {
		accounts = append(accounts, newAccount(decisions[i].Share, decisions[i].plan, outcomes[i]))
	}
	for i := range o.Shares {
		if share := &o.Shares[i]; !share.Standing.MayChange() {
			plan, _ := expand.Decide(now, share.Policy, asPublished(share.State), expand.Budget{}, expand.Memory{})
			accounts = append(accounts, newAccount(share, plan, outcome{Shortfall: expand.Shortfall{Exhausted: plan.Claim.Addresses}}))
		}
	}
	return accounts
}

// report reports, to users and schedulers, the shortage of a node and the obstacles to its drains.
func (r *Reconciler) report(ctx context.Context, o *observation, decisions []decision, outcomes []outcome) error {
	accounts := o.accounts(decisions, outcomes, r.Clock.Now())
	if r.Cluster.Unscheduled != nil { // other nodes return an idle block for it
		r.Cluster.Unscheduled.SetWithoutBlock(o.Name, slices.ContainsFunc(accounts[:len(decisions)], account.lacksFirstBlock))
	}
	if o.Node == nil {
		r.Metrics.drains.forget(o.Name, func(state.ShareKey) bool { return true })
		r.Metrics.shortages.DeletePartialMatch(prometheus.Labels{"node": o.Name})
		r.Metrics.offered.DeletePartialMatch(prometheus.Labels{"node": o.Name}) // its blocks cool down for long
	}
	if !r.Cluster.Paused {
		r.Reporter.reportLabelsWait(ctx, o)
	}
	unselected := o.Standing.Kind == state.Unselected
	r.Metrics.withoutPool(o.Name, unselected || slices.ContainsFunc(o.Unserved, func(u state.Unserved) bool { return u.OfAgent && !u.AtRestart }))
	if o.Node == nil || o.Standing.Kind == state.AwaitsLabels {
		r.Cluster.Awaiting.Forget(o.Name)
		return nil
	}
	if o.Standing.Kind == state.OtherIPAM {
		r.Cluster.Awaiting.Forget(o.Name)
		// The other IPAM answers for the shortage now.
		r.Metrics.shortages.DeletePartialMatch(prometheus.Labels{"node": o.Name})
		r.Reporter.sendShortage(o.Node, nil, nil)
		return r.setShortage(ctx, o, decisions, nil, nil)
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
	return r.setShortage(ctx, o, decisions, accounts, lack)
}

// reportSupplies reports the shortages and obstacles of the node's shares, and has the node woken once a pool has
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

// lacksFirstBlock reports whether the node waits for the first block of a family.
func (s account) lacksFirstBlock() bool {
	return s.Exhausted > 0 && len(s.State.Blocks) == 0 && !s.OfPods
}

// isOfPod reports whether the account is for the address of one pod's name.
func (s *account) isOfPod() bool { return crd.PodOfPool(s.CiliumPool) != "" }

// shortageOf returns the shortage of a node with these accounts; nil: it has none.
func shortageOf(accounts []account) *shortage {
	var parts []string
	lack := &shortage{someOnly: true}
	for i := range accounts {
		s := &accounts[i]
		if s.balance.Wanted == 0 {
			continue
		}
		reason, message := s.cause()
		parts = append(parts, message)
		lack.shares = append(lack.shares, s.what())
		if lack.reason == "" || lack.reason == reasonMoves || reason == v1alpha1.NodePoolsExhausted || reason == reasonWriteFails {
			lack.reason = reason
		}
		lack.podsWait = lack.podsWait || s.balance.Missing > 0
		lack.someOnly = lack.someOnly && (s.balance.Missing == 0 || s.OfPods)
	}
	if len(parts) == 0 {
		return nil
	}
	lack.message = suggest.Sentences(parts)
	return lack
}

// what names the family and the Cilium pool of an account.
func (s *account) what() string {
	if s.CiliumPool != "" {
		return s.Family.String() + " of Cilium's pool " + s.CiliumPool
	}
	return s.Family.String()
}

// cause describes why one family of a node lacks addresses, and their number.
func (s *account) cause() (reason, message string) {
	subject := s.what()
	wanted := s.balance.Wanted
	switch {
	case !s.Standing.MayChange():
		return reasonPaused, fmt.Sprintf("%s: %d more addresses needed, and the node gets none: %s", subject, wanted, s.Standing.Because())
	case s.err != nil:
		return reasonWriteFails, fmt.Sprintf("%s: %d more addresses wanted, and the operator cannot give them: %s", subject, wanted, termsafe.Line(s.err.Error()))
	case s.Exhausted > 0 && len(s.Pools) > 0 && s.isOfPod():
		return reasonMoves, fmt.Sprintf("%s: the address that is pinned to pod %s cannot come here yet: kubectl get podippins", subject, s.Pools[0].Pod)
	case s.Exhausted > 0:
		return v1alpha1.NodePoolsExhausted, fmt.Sprintf("%s: %d more addresses wanted and no pool that serves this node (%s) has a free block",
			subject, s.Exhausted, poolNames(s.Share))
	case s.State.RunsWithAnother():
		return reasonRunsWithOther, fmt.Sprintf("%s: the agent runs with podCIDR %s, which is no block of this node, so the node is assigned no block", subject, s.State.BlockAssignment.ActiveCIDRs[0])
	case s.State.BlockAssignment != nil && s.State.BlockAssignment.SingleBlock:
		return reasonBlockFull, fmt.Sprintf("%s: %d more addresses needed than the block of this node has, and a Node gets no second one in kubernetes mode",
			subject, s.plan.Shortage)
	}
	return reasonLimitReached, fmt.Sprintf("%s: %d more addresses needed than maxBlocksPerNode, the CiliumNode's max-allocate or --max-addresses-per-node allow",
		subject, s.plan.Shortage)
}

// poolNames lists the pools of a node, each with the reason if it assigns no block.
func poolNames(share *state.Share) string {
	if len(share.Pools) == 0 {
		return "none"
	}
	var names []string
	for _, pool := range share.Pools {
		name := pool.Name
		_, assigns := pool.Cut(share.Family)
		switch {
		case pool.Frozen():
			name += ": invalid"
		case pool.Paused:
			name += ": paused"
		case !assigns:
			name += ": no open CIDR"
		}
		names = append(names, name)
	}
	return suggest.First(5, names)
}

// shortageOfUnselected returns the shortage of a Node that no pool selects, in addition to the shortage of its blocks. With
// addresses from before, or from another IPAM, its pods keep running: no need is unmet until these
// run out.
func (o *observation) shortageOfUnselected(lack *shortage) *shortage {
	isEmpty := o.CiliumNode == nil || o.CiliumNode.AssignsNone()
	return &shortage{
		podsWait: isEmpty || lack != nil && lack.podsWait, reason: reasonNoPool,
		message: "no PodIPPool selects this node, so it gets no block",
	}
}

// withUnserved adds to a shortage the node's requests that no PodIPPool serves.
func withUnserved(lack *shortage, unserved []state.Unserved) *shortage {
	if len(unserved) == 0 {
		return lack
	}
	var messages []string
	if lack == nil {
		lack = &shortage{someOnly: true, reason: reasonNotServed}
	} else {
		messages = append(messages, lack.message)
	}
	for i := range unserved {
		u := &unserved[i]
		if !lack.podsWait && !u.AtRestart {
			lack.podsWait = true
			lack.someOnly = !u.OfAgent
			lack.reason = reasonNotServed
		} else if u.OfAgent && !u.AtRestart {
			lack.someOnly = false
		}
		messages = append(messages, u.Message)
	}
	lack.message = suggest.Sentences(messages)
	return lack
}

// maxNotified bounds the pods of a node that get an event about one unserved Cilium pool. Pods of one
// workload have the same fault.
const maxNotified = 10

// sendUnservedPods reports to pods, once each, that no PodIPPool serves the Cilium pool that they
// ask for on their node. A pod that the limit of events leaves out is told by a later reconcile.
func (r *Reporter) sendUnservedPods(o *observation) {
	pods := o.UnservedPods()
	earlier := strings.Fields(r.Events.Last.Text(o.Name, topicUnserved))
	var notified []string
	for _, u := range o.Unserved {
		isNew := func(name string) bool { return !slices.Contains(earlier, string(pods[name].UID)) }
		names := slices.DeleteFunc(slices.Clone(u.Pods), isNew)
		names = append(names, slices.DeleteFunc(slices.Clone(u.Pods), func(name string) bool { return !isNew(name) })...)
		for _, name := range names[:min(maxNotified, len(names))] {
			namespace, pod, _ := strings.Cut(name, "/")
			obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod, UID: pods[name].UID}}
			if !isNew(name) || slices.Contains(notified, string(obj.UID)) ||
				r.Events.SendOften(obj, o.Node, event.ReasonCiliumPoolNotServed, pods[name].Message) {
				notified = append(notified, string(obj.UID))
			}
		}
	}
	r.Events.Last.Changed(o.Name, topicUnserved, strings.Join(notified, " "))
}

// cooldownPools bounds the pools of each family that an event about a shortage describes.
const cooldownPools = 3

// cooldowns describes the full pools that could serve the node's shortage: the number of cooling
// blocks, and the end of their cooldown. The condition of the Node does not say so: each block that
// comes or goes would be a write about every node that starves.
func cooldowns(ledger *state.Ledger, accounts []account) string {
	var text string
	for _, s := range accounts {
		if s.Exhausted == 0 {
			continue
		}
		for _, pool := range s.Pools[:min(len(s.Pools), cooldownPools)] {
			text += fmt.Sprintf(". Pool %s (%s): %s", pool.Name, s.Family, ledger.Cooldowns(pool, s.Family))
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

// familyDisabledText describes the families that pools offer the node and its agent does not run.
func (o *observation) familyDisabledText() string {
	var parts []string
	rest := "one that it holds stays until it is drained"
	if o.CiliumNode != nil && o.CiliumNode.BlockAssignment != nil {
		rest = "the agent returns one that it holds"
	}
	for i := range o.Shares {
		if f := &o.Shares[i]; o.CiliumNode.FamilyDisabled(f.Family) && len(f.Pools) > 0 {
			parts = append(parts, fmt.Sprintf("the agent does not run %s, which pool %s has: no %s block is claimed for this node, and %s",
				f.Family, f.Ruling(), f.Family, rest))
		}
	}
	return suggest.Sentences(parts)
}
