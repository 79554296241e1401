package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
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
	// ofPools: full pools are the reason, and their statuses and events report it.
	ofPools bool
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
			plan, balance := share.Balance(now)
			accounts = append(accounts, account{share, plan, outcome{Shortfall: expand.Shortfall{Exhausted: plan.Claim.Addresses}}, balance})
		}
	}
	return accounts
}

// lacksFirstBlock reports whether the node waits for the first block of a family.
func (s account) lacksFirstBlock() bool {
	return s.Exhausted > 0 && len(s.State.Blocks) == 0 && !s.OfPods
}

// isOfOwner reports whether the account is for the address of an owner.
func (s *account) isOfOwner() bool { return crd.OwnerOfPool(s.CiliumPool) != "" }

// shortageOf returns the shortage of a node with these accounts; nil: it has none.
func shortageOf(accounts []account) *shortage {
	var parts []string
	lack := &shortage{someOnly: true, ofPools: true}
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
		lack.ofPools = lack.ofPools && reason == v1alpha1.NodePoolsExhausted && slices.ContainsFunc(s.Pools, s.isReportedBy)
		lack.someOnly = lack.someOnly && (s.balance.Missing == 0 || s.OfPods)
	}
	if len(parts) == 0 {
		return nil
	}
	lack.message = suggest.Sentences(parts)
	return lack
}

// isReportedBy reports whether the status of a full pool says that pods of the account wait for a block, or at least that
// there is none.
func (s *account) isReportedBy(pool *crd.Pool) bool {
	_, assigns := pool.Cut(s.Family)
	return !pool.Frozen() && !pool.Paused && !pool.Deleting && (assigns || s.balance.Missing > 0)
}

// what names the family and the Cilium pool of an account.
func (s *account) what() string {
	if s.CiliumPool != "" {
		return s.Family.String() + " of Cilium's pool " + s.CiliumPool
	}
	return s.Family.String()
}

// cause describes why one family of a node lacks addresses. Their number changes with each pod: the metric and kubectl
// cilium-pool have it.
func (s *account) cause() (reason, message string) {
	subject := s.what()
	switch {
	case !s.Standing.MayChange():
		return reasonPaused, fmt.Sprintf("%s: the node needs more addresses and gets none: %s", subject, s.Standing.Because())
	case s.err != nil:
		return reasonWriteFails, fmt.Sprintf("%s: the node needs more addresses, and the operator cannot give them: %s", subject, termsafe.Line(s.err.Error()))
	case s.Exhausted > 0 && len(s.Pools) > 0 && s.isOfOwner():
		return reasonMoves, fmt.Sprintf("%s: the address that is pinned to %s cannot come here yet, or another of them has it: kubectl get podippins", subject, crd.OwnerWords(s.Pools[0].Owner))
	case s.Exhausted > 0:
		return v1alpha1.NodePoolsExhausted, fmt.Sprintf("%s: no pool that serves this node (%s) has a free block", subject, poolNames(s.Share))
	case s.State.RunsWithAnother():
		return reasonRunsWithOther, fmt.Sprintf("%s: the agent runs with podCIDR %s, which is no block of this node, so the node is assigned no block", subject, s.State.BlockAssignment.ActiveCIDRs[0])
	case s.State.BlockAssignment != nil && s.State.BlockAssignment.SingleBlock:
		return reasonBlockFull, subject + ": the block of this node is full, and a Node gets no second one in kubernetes mode"
	}
	return reasonLimitReached, subject + ": maxBlocksPerNode, the CiliumNode's max-allocate or --max-addresses-per-node allow no more addresses"
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
		lack.ofPools = false
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

// setShortage writes the condition of the Node, puts the shortage taint on it while its pods cannot
// get an address, and takes it off afterwards. A Node that registered with the taint keeps it until
// it is served: autoscalers take a node without its startup taint for a complete one.
func (r *Reconciler) setShortage(ctx context.Context, o *observation, decisions []decision, accounts []account, lack *shortage, next *wakeup) (err error) {
	if r.Cluster.Paused { // a pause promises no write about nodes
		return nil
	}
	if r.Reporter.NodeCondition {
		var due time.Time
		due, err = r.Reporter.setNodeCondition(ctx, o.Node, lack)
		next.noLaterThan(due, "the message of its condition is due")
	}
	short := lack != nil && lack.podsWait && !lack.someOnly
	if r.Cluster.ShortageTaint == "" || !short && !r.Cluster.OptedOut(o.Node) && !o.servesPods(r.OfferFamilies, decisions, accounts) {
		return err
	}
	return errors.Join(err, r.Reporter.setNodeTaint(ctx, o.Node, r.Cluster.ShortageTaint, short && !r.SetsNoTaint))
}

// servesPods reports whether the node has all addresses that it gets for now: of its first block,
// and for unscheduled pods. Where Nodes offer addresses, they count once they are offered. Another
// IPAM serves its nodes by itself.
func (o *observation) servesPods(families []ipalloc.Family, decisions []decision, accounts []account) bool {
	if o.Standing.Kind == state.OtherIPAM {
		return true
	}
	if o.CiliumNode == nil || len(o.Shares) == 0 {
		return false
	}
	for i := range accounts {
		s := &accounts[i]
		grows := len(s.plan.Publish)+len(s.plan.Assign) > 0 || s.plan.Claim.Blocks > 0 && s.Exhausted == 0 // by this plan
		if !s.State.FamilyDisabled && (grows || s.CiliumPool == "" && !o.provides(families, decisions, s.Family)) {
			return false
		}
	}
	return true
}

// provides reports whether the node has addresses of a family for pods.
func (o *observation) provides(families []ipalloc.Family, decisions []decision, f ipalloc.Family) bool {
	if slices.Contains(families, f) {
		n, known := o.offerOf(families, decisions, f, "")
		last := o.memory.lastOffer(o.Node)
		// An offer that was written in this reconcile has changed the Node.
		return known && n > 0 && n == last.allocatable.Of("")[f] && last.version == o.Node.ResourceVersion
	}
	return slices.ContainsFunc(o.CiliumNode.PodRanges(), func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) == f })
}
