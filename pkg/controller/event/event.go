// Package event sends Kubernetes events, each occurrence once.
package event

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
)

// Reasons of events. docs/reference/events.md has the advice for each.
const (
	ReasonBlockClaimed               = "BlockClaimed"
	ReasonBlockDraining              = "BlockDraining"
	ReasonBlockCoolingDown           = "BlockCoolingDown"
	ReasonBlockBackInService         = "BlockBackInService"
	ReasonBlockRemade                = "BlockRemade"
	ReasonBlockConflict              = "BlockConflict"
	ReasonBlockTooLarge              = "BlockTooLarge"
	ReasonCiliumNodeRestored         = "CiliumNodeRestored"
	ReasonCiliumNodeRemade           = "CiliumNodeRemade"
	ReasonCiliumNodeUnreadable       = "CiliumNodeUnreadable"
	ReasonPodAddressShortage         = "PodAddressShortage"
	ReasonNoPoolSelectsNode          = "NoPoolSelectsNode"
	ReasonCiliumPoolNotServed        = "CiliumPoolNotServed"
	ReasonDrainWaits                 = "DrainWaits"
	ReasonWaitsForLabels             = "WaitsForLabels"
	ReasonLabelsOverdue              = "LabelsOverdue"
	ReasonFamilyNotRun               = "FamilyNotRun"
	ReasonPoolInvalid                = "PoolInvalid"
	ReasonPoolOverlapping            = "PoolOverlapping"
	ReasonReservedBlocksHeld         = "ReservedBlocksHeld"
	ReasonPoolCoversClusterAddresses = "PoolCoversClusterAddresses"
	ReasonPoolExhausted              = "PoolExhausted"
	ReasonPoolRecovered              = "PoolRecovered"
	ReasonPoolWaitsForBlocks         = "PoolWaitsForBlocks"
	ReasonPoolEmpty                  = "PoolEmpty"
	ReasonCiliumPodIPPoolUnfit       = "CiliumPodIPPoolUnfit"
	ReasonPoolMasqueraded            = "PoolMasqueraded"
	ReasonCiliumModeDiffers          = "CiliumModeDiffers"
	ReasonInitialPoolRefused         = "InitialPoolRefused"
)

// Recorder sends Kubernetes events.
type Recorder struct {
	recorder events.EventRecorder
	// often limits the events of claims, of block phase changes and about pods. With thousands of
	// changes they would make up a fifth of all API requests.
	often    flowcontrol.PassiveRateLimiter
	refusals refusals

	// Last is the last report, in events or in the log.
	Last Last
}

// Reconcile is the action of events that need no action of their own.
const Reconcile = "Reconcile"

const (
	blockEventsPerSecond = 5
	blockEventsAtOnce    = 100
)

// NewRecorder sends events through recorder.
func NewRecorder(recorder events.EventRecorder, c clock.PassiveClock) *Recorder {
	return &Recorder{
		recorder: recorder, refusals: newRefusals(c),
		often: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(blockEventsPerSecond, blockEventsAtOnce, c),
	}
}

// maxNote is the API server's limit on a note, in bytes (k8s.io/kubernetes
// pkg/apis/core/validation/events.go, v1.36.3).
const maxNote = 1024

// Type returns Warning for event reasons that call for action, and Normal for
// others.
func Type(reason string) string {
	switch reason {
	case ReasonBlockRemade, ReasonBlockConflict, ReasonBlockTooLarge, ReasonCiliumNodeRestored, ReasonCiliumNodeRemade, ReasonCiliumNodeUnreadable,
		ReasonPodAddressShortage, ReasonNoPoolSelectsNode, ReasonLabelsOverdue, ReasonFamilyNotRun, ReasonPoolInvalid, ReasonPoolOverlapping, ReasonPoolExhausted,
		ReasonCiliumPodIPPoolUnfit, ReasonReservedBlocksHeld, ReasonPoolCoversClusterAddresses, ReasonInitialPoolRefused,
		ReasonPoolMasqueraded, ReasonCiliumModeDiffers, ReasonCiliumPoolNotServed,
		config.ReasonWriteRefused:
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// Send sends an event about an object.
func (e *Recorder) Send(about runtime.Object, reason, action, note string) {
	e.SendWith(about, nil, reason, action, note)
}

// SendOften sends an event about a block of a node, or a pod, except in a storm: blocks, and
// conditions of Nodes, carry the same information.
func (e *Recorder) SendOften(about, related runtime.Object, reason, note string) {
	if e.often.TryAccept() {
		e.SendWith(about, related, reason, Reconcile, note)
	}
}

// SendWith sends an event with a related object. Within six minutes the recorder merges
// events that differ only in their note, and keeps the first note (k8s.io/client-go
// v0.36.3, tools/events, getKey): a new event must differ in its action or related
// object as well.
func (e *Recorder) SendWith(about, related runtime.Object, reason, action, note string) {
	if len(note) > maxNote {
		note = note[:maxNote-3] + "..."
	}
	e.recorder.Eventf(about, related, Type(reason), reason, action, "%s", note)
}
