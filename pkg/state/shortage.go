package state

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// Balance returns the plan of a share and the balance of its addresses while no block is claimed for it: as nothing may
// change, or as the cluster is at the time of a look. Its Missing is what the operator reports after its writes, unless
// these bring addresses.
func (s *Share) Balance(now time.Time) (expand.Plan, expand.Balance) {
	current := s.State
	if !s.Standing.MayChange() {
		current = current.AsPublished()
	}
	plan, _ := expand.Decide(now, s.Policy, current, expand.Budget{}, expand.Memory{})
	return plan, expand.BalanceOf(&current, plan, expand.Shortfall{Exhausted: plan.Claim.Addresses}, s.Standing.MayChange())
}

// LacksBlock reports whether a share with a plan needs a block and none of its pools has a free one.
func (s *Share) LacksBlock(ledger *Ledger, plan expand.Plan) bool {
	if plan.Claim.Addresses == 0 || !s.Standing.MayChange() {
		return false
	}
	for _, pool := range s.Pools {
		if cut, assigns := pool.Cut(s.Family); assigns && !pool.Paused && !pool.Deleting && ledger.Free(cut) > 0 {
			return false
		}
	}
	return true
}

// ShortageOf returns the message of a Node's condition that its pods lack addresses; "": they do not. node may be nil.
func ShortageOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.NodeAddressShortage && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// Starves reports whether a Node's condition says that its pods wait for a block, and that no
// pool has one. A restarted operator knows it at once.
func Starves(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeAddressShortage && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.NodePoolsExhausted
	})
}
