package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Reasons of the condition ReservedBlocksHeld.
const (
	ReasonHeldBefore  = "HeldBeforeReserved"
	ReasonNoneSkipped = "NoneHeld"
)

// namedBlocks bounds the number of blocks that a message names.
const namedBlocks = 5

// setReserved reports the blocks that nodes held before a range was reserved. A
// reservation never moves them: it would take addresses from pods for the sake of
// others that may not be used yet, on many nodes at once.
func setReserved(obj *v1alpha1.PodIPPool, pool *crd.Pool, u poolUsage, now time.Time) {
	families := ipalloc.Families()
	if pool == nil || !slices.ContainsFunc(families[:], func(f ipalloc.Family) bool { return len(pool.Skipped(f)) > 0 }) {
		meta.RemoveStatusCondition(&obj.Status.Conditions, v1alpha1.PoolReservedHeld)
		return
	}
	held := slices.DeleteFunc(slices.Clone(u.Reserved), func(b crd.Block) bool { return b.Phase == ipalloc.CoolingDown || !pool.Skips(b.CIDR) })
	slices.SortFunc(held, func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) })
	status, reason, message := reservedIs(pool, held)
	meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PoolReservedHeld, Status: status, Reason: reason, Message: message,
		ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}

// reservedIs describes the held blocks, sorted, that overlap a reserved range.
func reservedIs(pool *crd.Pool, held []crd.Block) (status metav1.ConditionStatus, reason, message string) {
	if len(held) == 0 {
		return metav1.ConditionFalse, ReasonNoneSkipped, "no node holds a block that overlaps a reserved range"
	}
	var parts []string
	for _, b := range held[:min(len(held), namedBlocks)] {
		parts = append(parts, fmt.Sprintf("block %s of node %s overlaps reserved %s", b.CIDR, b.Node, reservedIn(pool, b.CIDR)))
	}
	message = strings.Join(parts, "; ")
	if more := len(held) - namedBlocks; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	if pool.WholeBlocks {
		return metav1.ConditionTrue, ReasonHeldBefore, message + ". Agents give pods any address of a block, reserved ones too. " +
			"A block leaves once its agent returns it, or with its Node: drain the Node"
	}
	return metav1.ConditionTrue, ReasonHeldBefore, message + ". Pods get no reserved address, but other nodes still route these blocks as a whole. " +
		"To move one off its node, which gets a replacement first: kubectl delete podipblock " + held[0].Name + " --wait=false"
}

// reservedIn names the first reserved range that shares addresses with block.
func reservedIn(pool *crd.Pool, block netip.Prefix) string {
	for _, r := range pool.Reservations {
		if r.CIDR.Overlaps(block) {
			return r.String()
		}
	}
	return block.String()
}
