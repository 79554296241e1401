// Package event sends Kubernetes events, each occurrence once.
package event

import (
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
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
	ReasonBlocksNotAnnounced         = "BlocksNotAnnounced"
	ReasonAddressNotKept             = "AddressNotKept"
	ReasonAddressInUse               = "AddressInUse"
	ReasonNoProgress                 = "NoProgress"
	ReasonEtcdRestored               = "EtcdRestored"
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
		recorder: recorder,
		refusals: refusals{
			clock: c, last: map[string]reported{}, failing: map[string]streak{},
			limit: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(blockEventsPerSecond, blockEventsAtOnce, c),
		},
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
		ReasonCiliumPodIPPoolUnfit, ReasonReservedBlocksHeld, ReasonPoolCoversClusterAddresses,
		ReasonPoolMasqueraded, ReasonCiliumModeDiffers, ReasonCiliumPoolNotServed, ReasonBlocksNotAnnounced, ReasonAddressNotKept, ReasonAddressInUse,
		ReasonNoProgress, ReasonEtcdRestored, config.ReasonWriteRefused:
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// Send sends an event about an object.
func (e *Recorder) Send(subject runtime.Object, reason, action, note string) {
	e.SendWith(subject, nil, reason, action, note)
}

// SendOnce sends an event about an object when its note on a topic changes; "": there is none to send.
func (e *Recorder) SendOnce(about client.Object, topic, reason, note string) {
	if e.Last.Changed(about.GetName(), topic, note) && note != "" {
		e.Send(about, reason, Reconcile, note)
	}
}

// SendOften sends an event about a block of a node, or a pod, except in a storm: blocks, and
// conditions of Nodes, carry the same information. It reports whether it sent it.
func (e *Recorder) SendOften(subject, related runtime.Object, reason, note string) bool {
	sent := e.often.TryAccept()
	if sent {
		e.SendWith(subject, related, reason, Reconcile, note)
	}
	return sent
}

// SendWith sends an event with a related object. Within six minutes the recorder merges
// events that differ only in their note, and keeps the first note (k8s.io/client-go
// v0.36.3, tools/events, getKey): a new event must differ in its action or related
// object as well.
func (e *Recorder) SendWith(subject, related runtime.Object, reason, action, note string) {
	e.recorder.Eventf(subject, related, Type(reason), reason, action, "%s", termsafe.Cut(note, maxNote))
}

// Last is the last report about each object, by its name without its kind, so that none is repeated. It is
// safe for concurrent use.
type Last struct {
	mu sync.Mutex
	// notes are those about each object, by topic. None of them is empty, nor an object's map.
	notes map[string]map[string]string
}

// Changed records a note on a topic about an object, "" for none, and reports whether it
// differs from the last one.
func (l *Last) Changed(name, topic, text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.notes[name][topic] == text:
		return false
	case l.notes == nil:
		l.notes = map[string]map[string]string{name: {}}
	case l.notes[name] == nil:
		l.notes[name] = map[string]string{}
	}
	if l.notes[name][topic] = text; text == "" {
		delete(l.notes[name], topic)
	}
	if len(l.notes[name]) == 0 {
		delete(l.notes, name)
	}
	return true
}

// Text returns the last note on a topic about an object; "": none.
func (l *Last) Text(name, topic string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notes[name][topic]
}

// Forget drops the notes about an object that is gone.
func (l *Last) Forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.notes, name)
}

// refusalChanged is the minimum time between two reports with different messages: webhooks'
// messages may differ each time.
const refusalChanged = 5 * time.Minute

// refusals are the writes that were refused at the last attempt, by the reconcile that sends
// them.
type refusals struct {
	clock clock.PassiveClock
	// limit bounds the events: a wrong role refuses the writes of all nodes.
	limit flowcontrol.PassiveRateLimiter

	mu   sync.Mutex
	last map[string]reported
	// failing are the reconciles without a success since their first error.
	failing map[string]streak
}

type reported struct {
	subject runtime.Object
	note    string
	time    time.Time
}

// streak counts the errors of a reconcile in a row.
type streak struct {
	tries int
	begin time.Time
}

// A reconcile makes no progress after so many errors in a row, over at least this time. Lost races,
// late watches and a busy API server pass before that.
const (
	lastingTries = 10
	lastingFor   = 2 * time.Minute
)

// ReportResult reports the result of a reconcile: that the API server refuses a write, on the object that
// subject returns, and, once the reconcile succeeds, that it no longer does. Another error, such as a
// conflict, is reported once it lasts, if subject returns an object for nil. The key names the reconcile.
func (e *Recorder) ReportResult(key string, err error, subject func(*common.Refusal) runtime.Object) {
	if err == nil {
		if previous, reported := e.refusals.end(key); reported {
			e.Send(previous.subject, config.ReasonWriteAccepted, Reconcile, "the operator's writes about this object succeed again")
		}
		return
	}
	lasts := e.refusals.lasts(key)
	reason := ReasonNoProgress
	action := Reconcile
	var note string
	refused := common.RefusalIn(err)
	switch {
	case refused != nil:
		reason = config.ReasonWriteRefused
		action = actionOf(refused)
		note = refused.Note()
	case lasts:
		note = "the operator has tried for minutes, and tries again: " + termsafe.Line(err.Error())
	default:
		return
	}
	if !e.refusals.due(key, note) {
		return
	}
	if obj := subject(refused); obj != nil {
		e.refusals.set(key, reported{obj, note, e.refusals.clock.Now()})
		e.Send(obj, reason, action, note)
	}
}

// ForgetResult drops the memory of a reconcile after its object is gone.
func (e *Recorder) ForgetResult(key string) { e.refusals.end(key) }

// actionOf differs for events that SendWith must not merge.
func actionOf(refused *common.Refusal) string {
	return strings.ToUpper(refused.Write[:1]) + refused.Write[1:] + refused.Kind + string(apierrors.ReasonForError(refused))
}

// lasts counts an error of a reconcile, and reports whether there has been no success for long.
func (r *refusals) lasts(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	failure := r.failing[key]
	if failure.tries == 0 {
		failure.begin = r.clock.Now()
	}
	failure.tries++
	r.failing[key] = failure
	return failure.tries >= lastingTries && r.clock.Since(failure.begin) >= lastingFor
}

// due reports whether a refusal should be reported now: it is new, and the limit allows another
// event. If the limit does not, the next attempt asks again.
func (r *refusals) due(key, note string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	previous, known := r.last[key]
	wait := config.RefusalAgain
	if previous.note != note {
		wait = refusalChanged
	}
	return (!known || r.clock.Since(previous.time) >= wait) && r.limit.TryAccept()
}

func (r *refusals) set(key string, current reported) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[key] = current
}

func (r *refusals) end(key string) (previous reported, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	previous, known = r.last[key]
	delete(r.last, key)
	delete(r.failing, key)
	return previous, known
}
