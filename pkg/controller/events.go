package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Reasons of events. docs/events.md says what to do about each.
const (
	EventDraining            = "BlockDraining"
	EventCoolingDown         = "BlockCoolingDown"
	EventBackInService       = "BlockBackInService"
	EventBlockRemade         = "BlockRemade"
	EventBlockConflict       = "BlockConflict"
	EventBlockTooLarge       = "BlockTooLarge"
	EventNodeRestored        = "CiliumNodeRestored"
	EventNodeRemade          = "CiliumNodeRemade"
	EventAddressShortage     = "PodAddressShortage"
	EventNoPool              = "NoPoolSelectsNode"
	EventDrainWaits          = "DrainWaits"
	EventWaitsForLabels      = "WaitsForLabels"
	EventFamilyNotRun        = "FamilyNotRun"
	EventPoolInvalid         = "PoolInvalid"
	EventPoolOverlapping     = "PoolOverlapping"
	EventReservedBlocksHeld  = "ReservedBlocksHeld"
	EventPoolCoversCluster   = "PoolCoversClusterAddresses"
	EventPoolExhausted       = "PoolExhausted"
	EventPoolExhaustedSoon   = "PoolExhaustedSoon"
	EventPoolRecovered       = "PoolRecovered"
	EventPoolWaitsForBlocks  = "PoolWaitsForBlocks"
	EventPoolEmpty           = "PoolEmpty"
	EventPoolCiliumPoolUnfit = "CiliumPodIPPoolUnfit"
	EventInitialPoolRefused  = "InitialPoolRefused"
)

// Events records Kubernetes events, each occurrence once: one method per event.
type Events struct {
	recorder events.EventRecorder
	// phases limits the events of block phase changes. With thousands of changes they
	// would make up a fifth of all API requests.
	phases flowcontrol.PassiveRateLimiter

	mu   sync.Mutex
	told map[string]string
}

const (
	phaseEventsPerSecond = 5
	phaseEventsAtOnce    = 100
)

// NewEvents sends events through recorder.
func NewEvents(recorder events.EventRecorder, c clock.PassiveClock) *Events {
	return &Events{
		recorder: recorder, told: map[string]string{},
		phases: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(phaseEventsPerSecond, phaseEventsAtOnce, c),
	}
}

// maxNote is the API server's limit on a note, in bytes (k8s.io/kubernetes
// pkg/apis/core/validation/events.go, v1.36.3).
const maxNote = 1024

// EventType returns Warning for event reasons that call for action, and Normal for
// others.
func EventType(reason string) string {
	switch reason {
	case EventBlockRemade, EventBlockConflict, EventBlockTooLarge, EventNodeRestored, EventNodeRemade,
		EventAddressShortage, EventNoPool, EventFamilyNotRun, EventPoolInvalid, EventPoolOverlapping, EventPoolExhausted, EventPoolExhaustedSoon,
		EventPoolCiliumPoolUnfit, EventReservedBlocksHeld, EventPoolCoversCluster, EventInitialPoolRefused:
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

func (e *Events) send(about runtime.Object, reason, action, note string) {
	e.sendWith(about, nil, reason, action, note)
}

// sendWith sends an event with a related object. Within six minutes the recorder merges
// events that differ only in their note, and keeps the first note (k8s.io/client-go
// v0.36.3, tools/events, getKey): a new event must differ in its action or related
// object as well.
func (e *Events) sendWith(about, related runtime.Object, reason, action, note string) {
	if len(note) > maxNote {
		note = note[:maxNote-3] + "..."
	}
	e.recorder.Eventf(about, related, EventType(reason), reason, action, "%s", note)
}

// isNews reports whether note differs from the last one reported for key.
func (e *Events) isNews(key, note string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.told[key] == note {
		return false
	}
	if note == "" {
		delete(e.told, key)
		return false
	}
	e.told[key] = note
	return true
}

// forget drops the last reports for a node that is gone.
func (e *Events) forget(node string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.told, "short/"+node)
	delete(e.told, "waits/"+node)
	delete(e.told, "labels/"+node)
	delete(e.told, "family/"+node)
}

func phaseMessage(phase ipalloc.Phase, reason expand.Reason) string {
	switch {
	case phase == ipalloc.InService:
		return "demand is back: the block is in service again"
	case phase == ipalloc.CoolingDown && reason == expand.NodeGone:
		return "the Node is gone; the block rests, as its machine may still be running"
	case phase == ipalloc.CoolingDown:
		return "no address of the block is published any more; it rests before another node may have it"
	}
	switch reason {
	case expand.Deleted:
		return "the block was deleted; it goes once no pod uses an address of it"
	case expand.CIDRDraining:
		return "its range has allocationPolicy Drain or is no longer in the pool; it goes once no pod uses an address of it"
	case expand.PoolChanged:
		return "another pool rules the node now, and nothing of the block has been in use; it goes once the agent, when it starts, has agreed"
	case expand.PoolDeleted:
		return "its pool was deleted; it goes once no pod uses an address of it"
	}
	return "the node has more addresses than it needs; the block goes as its pods go"
}

// blockPhase skips blocks during a storm: their conditions carry the same information.
func (e *Events) blockPhase(b *v1alpha1.PodIPBlock, phase ipalloc.Phase, reason expand.Reason, message string) {
	if !e.phases.TryAccept() {
		return
	}
	event := map[ipalloc.Phase]string{
		ipalloc.InService: EventBackInService, ipalloc.Draining: EventDraining, ipalloc.CoolingDown: EventCoolingDown,
	}[phase]
	if reason != expand.None {
		message = fmt.Sprintf("%s: %s", reason, message)
	}
	e.send(b, event, "Reconcile", message)
}

func (e *Events) blockRemade(b *v1alpha1.PodIPBlock) {
	e.send(b, EventBlockRemade, "Reconcile",
		fmt.Sprintf("the object of block %s was gone while node %s still publishes it; made it again", b.Spec.CIDR, b.Spec.NodeName))
}

func (e *Events) blockConflict(b *v1alpha1.PodIPBlock, message string) {
	e.send(b, EventBlockConflict, "Reconcile", message)
}

func (e *Events) blockTooLarge(b *v1alpha1.PodIPBlock) {
	note := fmt.Sprintf("block %s has more than %d addresses; none is published. Delete it and create smaller ones", b.Spec.CIDR, 1<<ipalloc.MaxHostBits)
	if e.isNews("large/"+b.Name, note) {
		e.send(b, EventBlockTooLarge, "Reconcile", note)
	}
}

func (e *Events) ciliumNodeRestored(node *corev1.Node) {
	e.send(node, EventNodeRestored, "Reconcile",
		"the CiliumNode was deleted under a living Node; put it back as it was, with the same blocks")
}

func (e *Events) ciliumNodeRemade(node *corev1.Node) {
	e.send(node, EventNodeRemade, "Reconcile",
		"the CiliumNode was missing and nobody remembers it; made it again with the node's blocks and addresses. Restart the cilium agent on this node, so that it adds the rest")
}

func (e *Events) shortOfAddresses(node *corev1.Node, lack *shortage) {
	if !e.isNews("short/"+node.Name, lack.reason) {
		return
	}
	event := EventAddressShortage
	if lack.reason == reasonNoPool {
		event = EventNoPool
	}
	e.send(node, event, lack.reason, lack.message+". "+adviceFor(lack.reason))
}

func (e *Events) enoughAddresses(node string) { e.isNews("short/"+node, "") }

// awaitsLabels reports why a node does not get its first block yet. It returns whether
// the reason is new; the end of the wait counts as new but sends no event.
func (e *Events) awaitsLabels(node *corev1.Node, why string) bool {
	key := "labels/" + node.Name
	if why == "" {
		return e.over(key)
	}
	if !e.isNews(key, why) {
		return false
	}
	e.send(node, EventWaitsForLabels, "Reconcile", why)
	return true
}

// over forgets the last report for key, and returns whether there was one.
func (e *Events) over(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, told := e.told[key]
	delete(e.told, key)
	return told
}

// familyNotRun reports families that pools offer and the agent does not run.
func (e *Events) familyNotRun(node *corev1.Node, why string) {
	if e.isNews("family/"+node.Name, why) {
		e.send(node, EventFamilyNotRun, "Reconcile", why)
	}
}

// waits reports what the drain of each block waits for.
func (e *Events) waits(node *corev1.Node, waits []expand.Wait) {
	var tell []expand.Wait
	news := ""
	for _, w := range waits {
		switch w.For {
		case expand.WaitHandshake, expand.WaitReturn, expand.WaitUnsettled, expand.WaitPodAddress, expand.WaitWindow, expand.WaitTurn:
			continue // these resolve by themselves
		}
		news += fmt.Sprintf("%s %s; ", w.CIDR, w.For)
		tell = append(tell, w)
	}
	// The pods that hold up a block change constantly and are not reported again.
	if !e.isNews("waits/"+node.Name, news) {
		return
	}
	for _, w := range tell {
		block := &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: crd.BlockName(w.CIDR)}}
		e.sendWith(node, block, EventDrainWaits, "WaitFor"+string(w.For), waitNote(w))
	}
}

func waitNote(w expand.Wait) string {
	const most = 5
	note := fmt.Sprintf("block %s waits for %s", w.CIDR, w.For)
	if len(w.By) > 0 {
		note += " " + strings.Join(w.By[:min(len(w.By), most)], ", ")
	}
	if len(w.By) > most {
		note += fmt.Sprintf(" and %d more", len(w.By)-most)
	}
	return note
}

func (e *Events) pool(p *v1alpha1.PodIPPool, reason, note string) {
	e.send(p, reason, "Reconcile", note)
}

// initialPoolRefused reports a pool of the chart's values that cannot be created.
func (e *Events) initialPoolRefused(ctx context.Context, name string, why error) {
	note := fmt.Sprintf("pools.%s in the chart's values cannot be created: %v. Correct the value and run helm upgrade", name, why)
	if e.isNews("initial/"+name, note) {
		log.FromContext(ctx).Error(why, "a pool of the chart's values cannot be created: correct the value and run helm upgrade", "value", "pools."+name)
		e.send(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}, EventInitialPoolRefused, "Create", note)
	}
}
