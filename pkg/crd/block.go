package crd

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Block is a PodIPBlock.
type Block struct {
	Name            string
	UID             types.UID
	ResourceVersion string

	CIDR       netip.Prefix
	Pool, Node string
	NodeUID    types.UID
	// CiliumPool is the Cilium pool that it was claimed for, if that is a single owner's; "": its
	// PodIPPool's.
	CiliumPool string

	Phase ipalloc.Phase
	// Reason is why it is in Phase, and Since is since when. Empty in service.
	Reason expand.Reason
	Since  time.Time
	// Closed is which run of its node's agent allocates none of it to new pods.
	Closed expand.Closed
	// Obstacle is what keeps it on its node while it leaves, or must, as its status says it: with a
	// Reason, a Note and, until it drains, a Request.
	Obstacle expand.Obstacle
	// Conflict: it overlaps an older block.
	Conflict bool
	// Published: its status says, of its present generation, that its node has its addresses:
	// kubectl wait heeds no older one.
	Published bool

	Created  time.Time
	Deleting bool
	// Drain: its spec requests that its node returns it. Undone: it no longer does, and its spec has
	// changed since it began to cool down.
	Drain, Undone bool
	// Finalized: it has our finalizer.
	Finalized bool
	// AdoptedFrom is the IPAM mode that had assigned the block to its node before
	// adoption. Empty: it was claimed, or its adoption is complete.
	AdoptedFrom string
}

// BlockFrom reads a block. For a malformed object it returns the readable fields beside
// the error, which names the others, so that its addresses can still be withheld from
// other nodes.
func BlockFrom(obj *v1alpha1.PodIPBlock) (Block, error) {
	b := Block{
		Name:            obj.Name,
		UID:             obj.UID,
		ResourceVersion: obj.ResourceVersion,
		Pool:            obj.Spec.PoolName,
		Node:            obj.Spec.NodeName,
		NodeUID:         types.UID(obj.Spec.NodeUID),
		CiliumPool:      obj.Spec.CiliumPoolName,
		Conflict:        meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.BlockConflict),
		Created:         obj.CreationTimestamp.Time,
		Deleting:        obj.DeletionTimestamp != nil,
		Drain:           ptr.Deref(obj.Spec.Drain, false),
		Finalized:       slices.Contains(obj.Finalizers, v1alpha1.Finalizer),
		AdoptedFrom:     obj.Labels[v1alpha1.AdoptedLabel],
	}
	b.readPhase(obj.Generation, &obj.Status)
	if c := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.BlockPublished); c != nil {
		b.Published = c.Status == metav1.ConditionTrue && c.ObservedGeneration >= obj.Generation
	}
	if c := obj.Status.Closed; c != nil {
		b.Closed = expand.Closed{Agent: c.Container, Since: c.Since.Time, Inferred: c.Inferred, Fruitless: int(c.Fruitless)}
	}

	path := field.NewPath("spec")
	var problems field.ErrorList
	cidr, bad := parseCIDR(obj.Spec.CIDR, path.Child("cidr"))
	switch {
	case bad != nil:
		problems = append(problems, bad)
	case cidr.String() != obj.Spec.CIDR:
		bad = field.Invalid(path.Child("cidr"), obj.Spec.CIDR, fmt.Sprintf("is not in canonical form: write %s", cidr))
		problems = append(problems, bad)
	case BlockName(cidr) != obj.Name:
		bad = field.Invalid(field.NewPath("metadata", "name"), obj.Name, fmt.Sprintf("does not follow from spec.cidr: must be %s", BlockName(cidr)))
		problems = append(problems, bad)
	}
	b.CIDR = cidr
	if b.Pool == "" {
		problems = append(problems, field.Required(path.Child("poolName"), "name the PodIPPool"))
	}
	if b.Node == "" {
		problems = append(problems, field.Required(path.Child("nodeName"), "name the Node"))
	}
	// ToAggregate's nil is of an interface type and stays nil as an error.
	return b, problems.ToAggregate()
}

// CIDRs returns the CIDRs of blocks.
func CIDRs(blocks []Block) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(blocks))
	for _, b := range blocks {
		out = append(out, b.CIDR)
	}
	return out
}

// AdoptedBlock returns the object that adopts cidr, which the IPAM mode source had
// assigned to node, as a block of pool.
func AdoptedBlock(cidr netip.Prefix, pool, node string, nodeUID types.UID, source string) *v1alpha1.PodIPBlock {
	obj := NewBlock(cidr, pool, node, nodeUID)
	obj.Labels = map[string]string{v1alpha1.AdoptedLabel: source}
	return obj
}

func (b *Block) readPhase(generation int64, status *v1alpha1.PodIPBlockStatus) {
	conditions := status.Conditions
	if w := status.WaitsFor; w != nil {
		b.Obstacle.Reason = expand.WaitReason(w.Reason)
		b.Obstacle.Note = w.Message
		if c := meta.FindStatusCondition(conditions, v1alpha1.BlockDraining); c != nil && c.Status == metav1.ConditionFalse {
			b.Obstacle.Request = expand.Reason(c.Reason)
		}
	}
	for _, phase := range []ipalloc.Phase{ipalloc.CoolingDown, ipalloc.Draining} {
		if c := meta.FindStatusCondition(conditions, conditionOf(phase)); c != nil && c.Status == metav1.ConditionTrue {
			b.Phase = phase
			b.Reason = expand.Reason(c.Reason)
			b.Since = c.LastTransitionTime.Time
			b.Undone = phase == ipalloc.CoolingDown && !b.Drain && c.ObservedGeneration < generation
			return
		}
	}
}

// NewBlock returns a block object. Its creation claims cidr for node.
func NewBlock(cidr netip.Prefix, pool, node string, nodeUID types.UID) *v1alpha1.PodIPBlock {
	return &v1alpha1.PodIPBlock{
		ObjectMeta: metav1.ObjectMeta{
			Name:       BlockName(cidr),
			Finalizers: []string{v1alpha1.Finalizer},
		},
		Spec: v1alpha1.PodIPBlockSpec{CIDR: cidr.String(), PoolName: pool, NodeName: node, NodeUID: string(nodeUID)},
	}
}

// SetBlockPhase sets the phase and its conditions: one that cools down neither drains nor is
// published, one in service has no condition CoolingDown. A new reason does not change the transition
// time. It reports whether anything changed.
func SetBlockPhase(obj *v1alpha1.PodIPBlock, phase ipalloc.Phase, reason expand.Reason, message string, now time.Time) bool {
	conditions := &obj.Status.Conditions
	name := phaseName(phase)
	changed := cmp.Or(obj.Status.Phase, v1alpha1.PhaseInService) != name
	obj.Status.Phase = name
	obj.Status.WaitsFor = nil
	if phase != ipalloc.CoolingDown {
		changed = meta.RemoveStatusCondition(conditions, v1alpha1.BlockCoolingDown) || changed
	} else {
		changed = SetBlockCondition(obj, v1alpha1.BlockCoolingDown, metav1.ConditionTrue, string(reason), message, now) || changed
		if meta.FindStatusCondition(*conditions, v1alpha1.BlockPublished) != nil {
			changed = setPublished(obj, false, now) || changed
		}
	}
	switch phase {
	case ipalloc.InService:
		return setServing(obj, now) || changed
	case ipalloc.Draining:
		return SetBlockCondition(obj, v1alpha1.BlockDraining, metav1.ConditionTrue, string(reason), message, now) || changed
	}
	return SetBlockCondition(obj, v1alpha1.BlockDraining, metav1.ConditionFalse, string(reason), message, now) || changed
}

// SetBlockPublished records whether the CiliumNode of a block in service has the block, and that the
// block does not drain, unless it may have to.
func SetBlockPublished(obj *v1alpha1.PodIPBlock, published bool, now time.Time) {
	obj.Status.Phase = v1alpha1.PhaseInService
	setPublished(obj, published, now)
	if !ptr.Deref(obj.Spec.Drain, false) && obj.Status.WaitsFor == nil {
		setServing(obj, now)
	}
}

func setServing(obj *v1alpha1.PodIPBlock, now time.Time) bool {
	return SetBlockCondition(obj, v1alpha1.BlockDraining, metav1.ConditionFalse, v1alpha1.DrainingInService, "its node may keep it", now)
}

func setPublished(obj *v1alpha1.PodIPBlock, published bool, now time.Time) bool {
	if published {
		return SetBlockCondition(obj, v1alpha1.BlockPublished, metav1.ConditionTrue, v1alpha1.PublishedInSpec, "node "+obj.Spec.NodeName+" has its addresses", now)
	}
	return SetBlockCondition(obj, v1alpha1.BlockPublished, metav1.ConditionFalse, v1alpha1.PublishedNotInSpec, "node "+obj.Spec.NodeName+" has none of its addresses", now)
}

// SetBlockCondition sets a condition of a block, and keeps the conditions sorted by type. It
// reports whether anything changed.
func SetBlockCondition(obj *v1alpha1.PodIPBlock, kind string, status metav1.ConditionStatus, reason, message string, now time.Time) bool {
	changed := meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, ObservedGeneration: obj.Generation,
		LastTransitionTime: metav1.NewTime(roundUp(now)), Reason: reason, Message: message,
	})
	slices.SortFunc(obj.Status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return changed
}

// SetBlockObstacle reports the obstacle to a block that leaves its node, or must; the zero Obstacle
// removes the report. message tells what happens to the block. It reports whether anything changed.
func SetBlockObstacle(obj *v1alpha1.PodIPBlock, obstacle expand.Obstacle, message string, now time.Time) bool {
	var next *v1alpha1.BlockWait
	if obstacle.Reason != "" {
		next = &v1alpha1.BlockWait{Reason: string(obstacle.Reason), Message: obstacle.Note}
	}
	changed := !ptr.Equal(obj.Status.WaitsFor, next)
	obj.Status.WaitsFor = next
	status := metav1.ConditionFalse
	reason := string(obstacle.Request)
	if c := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.BlockDraining); c != nil && c.Status == metav1.ConditionTrue {
		status = c.Status
		reason = c.Reason
	} else if next == nil {
		return setServing(obj, now) || changed
	}
	return SetBlockCondition(obj, v1alpha1.BlockDraining, status, reason, message, now) || changed
}

// SetBlockClosed records that an agent has closed a block, or, if closed is zero, that none has.
func SetBlockClosed(obj *v1alpha1.PodIPBlock, closed expand.Closed) {
	if closed.Agent == "" {
		obj.Status.Closed = nil
		return
	}
	obj.Status.Closed = &v1alpha1.BlockClosed{
		Container: closed.Agent, Since: metav1.NewTime(roundUp(closed.Since)), Inferred: closed.Inferred, Fruitless: int32(closed.Fruitless),
	}
}

func phaseName(phase ipalloc.Phase) v1alpha1.BlockPhase {
	switch phase {
	case ipalloc.Draining:
		return v1alpha1.PhaseDraining
	case ipalloc.CoolingDown:
		return v1alpha1.PhaseCoolingDown
	}
	return v1alpha1.PhaseInService
}

func conditionOf(phase ipalloc.Phase) string {
	if phase == ipalloc.CoolingDown {
		return v1alpha1.BlockCoolingDown
	}
	return v1alpha1.BlockDraining
}

// roundUp returns t in whole seconds, the API's resolution; rounding down would end a
// cooldown early.
func roundUp(t time.Time) time.Time {
	whole := t.Truncate(time.Second)
	if whole.Before(t) {
		return whole.Add(time.Second)
	}
	return whole
}

// BlockName returns the name of the PodIPBlock for cidr, which must have no host
// bits: 10.20.0.0-27, fd00-10--40-122, 0--40-122 for ::40/122. The CRD holds
// every object to it, so that creating one is an exclusive claim.
func BlockName(cidr netip.Prefix) string {
	name := strings.ReplaceAll(strings.ReplaceAll(cidr.String(), ":", "-"), "/", "-")
	if strings.HasPrefix(name, "-") {
		return "0" + name
	}
	return name
}

// ParseBlockName returns the block that a PodIPBlock of this name is for. It
// fails for every name that BlockName never returns.
func ParseBlockName(name string) (netip.Prefix, error) {
	addr := name
	bits := ""
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		addr = name[:i]
		bits = name[i+1:]
	}
	cidr, err := netip.ParsePrefix(strings.ReplaceAll(addr, "-", ":") + "/" + bits)
	if err != nil || cidr.Masked() != cidr || cidr.Addr().Is4In6() || BlockName(cidr) != name {
		return netip.Prefix{}, fmt.Errorf("%q is not the name of a block: those are like 10.20.0.0-27 or fd00-10--40-122", name)
	}
	return cidr, nil
}
