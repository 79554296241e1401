package pool

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// Reasons of a pool's conditions.
const (
	ReasonServing = "Serving"
	// ReasonSelectsNoNode: the pool can serve, and its selector picks no Node.
	ReasonSelectsNoNode = "SelectsNoNode"
	ReasonInvalid       = "Invalid"
	ReasonPaused        = "Paused"
	// ReasonNoCiliumPools: the pool names a Cilium pool in a mode that has none.
	ReasonNoCiliumPools = "NoCiliumPools"
	ReasonDeleting      = "WaitsForBlocks"
	ReasonOverlapping   = "OverlapsOlderPool"
	ReasonExhausted     = "NoFreeBlock"
	// ReasonNodesShort: pods of nodes that the pool selects wait, as no pool has a block.
	ReasonNodesShort = "NodesShort"
	ReasonFreeBlocks = "FreeBlocks"
	ReasonSeparate   = "NoOverlap"
	// ReasonPhasingOut: all CIDRs of the pool are cordoned or draining. ReasonEmpty:
	// and no block is left.
	ReasonPhasingOut = "PhasingOut"
	ReasonEmpty      = "Empty"
	// ReasonNotApplicable: the condition does not concern the pool or the mode, and has its healthy
	// status.
	ReasonNotApplicable = "NotApplicable"
)

// poolUsage is the held part of a pool, and its holders.
type poolUsage struct {
	state.PoolUsage
	// readOnly: the operator is paused or runs in shadow, and changes no node.
	readOnly bool
	served   servedNodes
	// excluded are the addresses of nodes and Services that the pool covers.
	excluded []exclude.Range
}

// phasesOut reports whether every family of the pool phases out.
func (u *poolUsage) phasesOut() bool {
	return len(u.Families) > 0 && !slices.ContainsFunc(u.Families, func(f state.FamilyUsage) bool { return !f.PhasesOut })
}

// fill writes the counts into a status.
func (u poolUsage) fill(s *v1alpha1.PodIPPoolStatus) {
	s.SelectedNodes = int32(min(u.Selected, math.MaxInt32))
	s.Nodes = int32(min(u.Nodes, math.MaxInt32))
	s.HeldPercent = nil
	if len(u.Families) == 0 { // unreadable: by the last counts the CRD still refuses to remove CIDRs that nodes hold
		for _, f := range []*v1alpha1.FamilyStatus{s.IPv4, s.IPv6} {
			if f != nil {
				f.Blocks.Free = 0
				f.Blocks.Assignable = f.Blocks.Held
				f.Addresses.Free = 0
				f.Addresses.Assignable = f.Addresses.Held
			}
		}
		return
	}
	s.IPv4 = nil
	s.IPv6 = nil
	for i := range u.Families {
		f := &u.Families[i]
		status := f.Status
		if f.Family == ipalloc.IPv4 {
			s.IPv4 = &status
		} else {
			s.IPv6 = &status
		}
		if share := f.Full(); s.HeldPercent == nil || share > *s.HeldPercent {
			s.HeldPercent = &share
		}
	}
}

// condition is what a condition of a pool says.
type condition struct {
	status          metav1.ConditionStatus
	reason, message string
}

func trueFor(reason, message string) *condition {
	return &condition{metav1.ConditionTrue, reason, message}
}

func falseFor(reason, message string) *condition {
	return &condition{metav1.ConditionFalse, reason, message}
}

func unknownFor(reason, message string) *condition {
	return &condition{metav1.ConditionUnknown, reason, message}
}

// unreadable reports whether the addresses of a pool are not known.
func unreadable(pool *crd.Pool) bool { return pool == nil || pool.Frozen() }

// noSpec is any condition, except Ready, that depends on the addresses of an unreadable pool.
func noSpec() *condition { return unknownFor(ReasonInvalid, "the spec cannot be read") }

// maxMessage is the API server's limit on the message of a condition. One may quote a whole selector.
const maxMessage = 32768

// setCondition sets a condition of a pool.
func setCondition(obj *v1alpha1.PodIPPool, kind string, next *condition, now time.Time) {
	meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
		Type: kind, Status: next.status, Reason: next.reason, Message: termsafe.Cut(next.message, maxMessage),
		ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}

// setConditions derives the conditions of a pool from its usage.
func setConditions(obj *v1alpha1.PodIPPool, pool *crd.Pool, invalid error, u poolUsage, now time.Time) {
	setCondition(obj, v1alpha1.PoolReady, readyCondition(obj, pool, invalid, u), now) // people read it first
	setCondition(obj, v1alpha1.PoolReservedHeld, reservedCondition(pool, u.Reserved), now)
	setCondition(obj, v1alpha1.PoolOverlapping, overlapCondition(pool), now)
	setCondition(obj, v1alpha1.PoolExhausted, exhaustedCondition(pool, u), now)
}

func overlapCondition(pool *crd.Pool) *condition {
	if unreadable(pool) {
		return noSpec()
	}
	if overlap := overlapMessage(pool); overlap != "" {
		return trueFor(ReasonOverlapping, overlap)
	}
	return falseFor(ReasonSeparate, "no other pool claims these addresses")
}

func exhaustedCondition(pool *crd.Pool, u poolUsage) *condition {
	exhausted := exhaustedMessage(pool, u)
	if len(u.Families) == 0 {
		return noSpec()
	}
	if u.phasesOut() {
		return falseFor(ReasonPhasingOut, "the pool assigns no new blocks")
	}
	if exhausted != "" {
		return trueFor(ReasonExhausted, exhausted)
	}
	if slices.ContainsFunc(u.Families, func(f state.FamilyUsage) bool { return isClosed(pool, f.Family) }) {
		return falseFor(ReasonOverlapping, "another pool assigns the addresses of a family: see the condition Overlapping")
	}
	return falseFor(ReasonFreeBlocks, "free blocks are left")
}

func readyCondition(obj *v1alpha1.PodIPPool, pool *crd.Pool, invalid error, u poolUsage) *condition {
	overlap := overlapMessage(pool)
	exhausted := exhaustedMessage(pool, u)
	starving := u.served.starvingWords()
	switch {
	case obj.DeletionTimestamp != nil:
		return falseFor(ReasonDeleting, u.deletedWords())
	case invalid != nil:
		return falseFor(ReasonInvalid, problems(invalid)+". "+servesMeanwhile(pool))
	case pool != nil && pool.Inactive:
		return falseFor(ReasonNoCiliumPools, "spec.ciliumPoolName is "+pool.CiliumPool+
			", and agents have no pools to choose from in the mode that the operator runs in: it serves no node. Run both in multi-pool or delegated-plugin mode, or make a pool without ciliumPoolName")
	case ptr.Deref(obj.Spec.Paused, false):
		return falseFor(ReasonPaused, "spec.paused is set: nothing changes on the nodes of this pool")
	case overlap != "" && !u.phasesOut():
		return falseFor(ReasonOverlapping, overlap)
	case starving != "" && exhausted == "":
		return falseFor(ReasonNodesShort, starving+". This pool assigns none of a family, as all its CIDRs are cordoned or drain")
	case starving != "":
		return falseFor(ReasonNodesShort, starving+": see the condition Exhausted")
	case u.phasesOut() && u.Held == 0:
		return trueFor(ReasonEmpty, "no node holds a block, and no CIDR allocates new ones: the pool can be deleted")
	case u.phasesOut():
		return trueFor(ReasonPhasingOut, fmt.Sprintf("no CIDR allocates new blocks; blocks that are left: %d, on %s", u.Held, nodesLine(u.First, u.Nodes)))
	case u.served.unselected != "":
		return trueFor(ReasonSelectsNoNode, "nodeSelector picks no Node: "+u.served.unselected)
	}
	return trueFor(ReasonServing, u.servingWords(pool, exhausted)+selectsAll(obj.Spec.NodeSelector))
}

// deletedWords names the obstacle to a deleted pool.
func (u *poolUsage) deletedWords() string {
	if u.Held == 0 {
		return "deleted; its finalizer goes once the operator sees no block of it and may write the pool"
	}
	return "deleted; waits for the blocks of " + nodesLine(u.First, u.Nodes)
}

func (u *poolUsage) servingWords(pool *crd.Pool, exhausted string) string {
	if exhausted != "" {
		return "no free block is left (see Exhausted), and no Node reports that its pods wait for one"
	}
	if u.readOnly {
		return "the operator is paused or runs in shadow, and gives nodes no blocks until that ends"
	}
	if pool == nil {
		return "nodes get blocks of this pool as they need them"
	}
	if pool.SingleBlock {
		return fmt.Sprintf("a node gets one block of each family, with addresses for %d pods beside its agent's own", state.PodsPerBlock(pool))
	}
	return fmt.Sprintf("nodes get blocks of this pool (%s) as they need them", pool.SizeText(ipalloc.IPv4, ipalloc.IPv6))
}

// problems describes an error of several lines.
func problems(err error) string {
	return suggest.Sentences(strings.Split(termsafe.Cut(err.Error(), maxMessage/2), "\n"))
}

// selectsAll says that a stored selector without a requirement selects all nodes: the API server refuses
// a new one, as a client may have written labels without matchLabels, which the API server drops.
func selectsAll(selector *metav1.LabelSelector) string {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
		return ""
	}
	return ". spec.nodeSelector is empty, so that the pool serves all nodes: write labels below matchLabels, or leave nodeSelector out"
}

// servesMeanwhile describes how an invalid pool serves until its spec is corrected.
func servesMeanwhile(pool *crd.Pool) string {
	if pool.Frozen() {
		return "Correct the spec; until then the pool assigns no block, and its nodes take blocks of the next pool that selects them"
	}
	return "All else of the spec is in force"
}

func overlapMessage(pool *crd.Pool) string {
	var parts []string
	for _, r := range pool.AllRanges() {
		if r.YieldsTo != "" {
			parts = append(parts, fmt.Sprintf("%s assigns nothing, as it overlaps %s of pool %s, which is older or, at the same age, first by name", r.CIDR, r.Overlap, r.YieldsTo))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return suggest.Sentences(parts) + ". Nodes keep the blocks that they have. Take the range out of one of the two pools"
}

// isClosed reports whether a pool assigns no block of a family as another pool assigns its addresses.
func isClosed(pool *crd.Pool, f ipalloc.Family) bool {
	if _, open := pool.Cut(f); open {
		return false
	}
	return slices.ContainsFunc(pool.AllRanges(), func(r crd.Range) bool {
		return ipalloc.FamilyOf(r.CIDR.Addr()) == f && r.Allocates() && r.YieldsTo != ""
	})
}

func exhaustedMessage(pool *crd.Pool, u poolUsage) string {
	var parts []string
	for i := range u.Families {
		if f := &u.Families[i]; f.Status.Blocks.Free == 0 && !f.PhasesOut && !isClosed(pool, f.Family) {
			parts = append(parts, fmt.Sprintf("no free block left for %s; %s%s%s",
				f.Family, state.CooldownsOf(pool, f.Family, slices.Values(u.CoolingDown)), u.served.withheldWords(f.Family), u.served.otherPoolsWords(f.Family)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ". And ") + ". Add a CIDR to spec, or a pool of lower priority for the same nodes"
}

// usedParts is the number of parts of used, of which one must change for a write of it alone.
const usedParts = 20

// setUsed adds the numbers of addresses in use, where agents report them.
func (u *poolUsage) setUsed(pool *crd.Pool, used [2]int64) {
	for i := range u.Families {
		if f := &u.Families[i]; !pool.WholeBlocks {
			f.Status.Addresses.Used = &used[f.Family]
		}
	}
}

// compareWords reports whether two statuses differ in messages of conditions and in the numbers of addresses in use
// alone, and whether a message differs, or a number by a twentieth.
func compareWords(old, next *v1alpha1.PodIPPoolStatus) (alone, much bool) {
	rest := next.DeepCopy()
	for _, f := range [][2]*v1alpha1.FamilyStatus{{old.IPv4, rest.IPv4}, {old.IPv6, rest.IPv6}} {
		if previous, current := f[0], f[1]; previous != nil && current != nil {
			much = much || changedMuch(previous.Addresses.Used, current.Addresses.Used)
			current.Addresses.Used = previous.Addresses.Used
		}
	}
	for i := range rest.Conditions {
		current := &rest.Conditions[i]
		if previous := meta.FindStatusCondition(old.Conditions, current.Type); previous != nil && previous.Message != current.Message {
			much = true
			current.Message = previous.Message
		}
	}
	return equality.Semantic.DeepEqual(old, rest), much
}

// untilWords returns the time until messages and the numbers of addresses in use of a pool may be written alone. The
// first such write after other news does not wait, as agents report their use of a block after it is held.
func (r *Reconciler) untilWords(pool string, now time.Time) time.Duration {
	last, _ := r.reworded.Load(pool)
	written, _ := last.(time.Time) // zero: this process has not
	return max(0, written.Add(common.RewordEvery).Sub(now))
}

func changedMuch(last, next *int64) bool {
	if last == nil || next == nil {
		return last != next
	}
	difference := max(*next-*last, *last-*next)
	return difference > 0 && difference*usedParts >= *last
}
