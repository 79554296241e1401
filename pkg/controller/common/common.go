// Package common is shared by the controllers: their writes and refusals, their metrics, and their
// retries.
package common

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// Refusal is the error of a write that the API server refuses until a role, an admission
// policy, a webhook or a schema changes.
type Refusal struct {
	// Kind and Name are the object's. Kind and Write are the labels of the metric
	// cilium_pool_api_writes_total.
	Kind, Name, Write string
	// Err is the API server's answer.
	Err error
}

func (e *Refusal) Error() string { return e.Err.Error() }

// Unwrap returns the API server's answer.
func (e *Refusal) Unwrap() error { return e.Err }

// RefusalOf returns err, as a *Refusal if the API server refuses the write.
func RefusalOf(kind, name, write string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return &Refusal{Kind: kind, Name: name, Write: write, Err: err}
	}
	return err
}

// RefusalIn returns the first refusal in err; nil: there is none.
func RefusalIn(err error) *Refusal {
	var refused *Refusal
	errors.As(err, &refused)
	return refused
}

// OfKind reports whether no other object of the kind would be accepted either: unlike an admission
// policy, a role does not look at the object.
func (e *Refusal) OfKind() bool {
	return IsUnsent(e) || apierrors.IsForbidden(e) && !isDenied(e)
}

// Note names the refused write, quotes the API server and advises.
func (e *Refusal) Note() string {
	return fmt.Sprintf("the API server refuses the write %q of %s %s: %s. %s. The operator tries again by itself",
		e.Write, e.Kind, e.Name, termsafe.Line(e.answer()), e.advice())
}

// answer is the API server's message, without additions of the operator's functions.
func (e *Refusal) answer() string {
	var status apierrors.APIStatus
	if errors.As(e.Err, &status) {
		return status.Status().Message
	}
	return e.Err.Error()
}

func (e *Refusal) advice() string {
	answer := e.answer()
	if isDenied(e) {
		return "Let the operator's ServiceAccount pass the admission policy or webhook that is named there"
	}
	if strings.Contains(answer, "terminating") || strings.Contains(answer, "being terminated") {
		return "Wait until what is being deleted is gone, and let its installer make it again: Cilium, or the operator's chart"
	}
	if apierrors.IsForbidden(e.Err) && !strings.Contains(answer, " cannot ") {
		return "Change what forbids it: the answer names it, for example a quota"
	}
	if apierrors.IsForbidden(e.Err) {
		return "Grant the operator this right: upgrade its chart, with rbac.create=true"
	}
	if apierrors.IsRequestEntityTooLargeError(e.Err) {
		return "Take what the operator did not write out of the object, or lower --max-addresses-per-node"
	}
	return "Correct the field that is named there, or install the CRDs of this version of the operator and of Cilium"
}

// CountWrite counts a write of an object and returns its error, as a *Refusal if the API
// server refuses it.
func (m *Counters) CountWrite(kind, name, write string, err error) error {
	result := "ok"
	switch {
	case IsUnsent(err):
		return RefusalOf(kind, name, write, err)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		result = "conflict"
	case err != nil:
		result = "error"
	}
	m.Writes.WithLabelValues(kind, write, result).Inc()
	return RefusalOf(kind, name, write, err)
}

// AddFinalizer is the patch that adds the operator's finalizer. It touches no other field, so
// managed fields of users stay theirs, and is conditional on the version of the object.
func AddFinalizer(obj client.Object) client.Patch {
	return finalizersPatch(obj, append(slices.Clone(obj.GetFinalizers()), v1alpha1.Finalizer))
}

// DropFinalizer is the patch that removes it, likewise.
func DropFinalizer(obj client.Object) client.Patch {
	return finalizersPatch(obj, slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == v1alpha1.Finalizer }))
}

func finalizersPatch(obj client.Object, finalizers []string) client.Patch {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		panic(err) // only strings
	}
	return client.RawPatch(types.MergePatchType, body)
}

// Counters are the metrics of more than one controller; docs/reference/metrics.md lists all.
type Counters struct {
	Writes, Claims, Releases *prometheus.CounterVec
}

// Results of a claim.
const (
	ClaimOK        = "ok"
	ClaimTaken     = "taken" // another writer claimed it first
	ClaimExhausted = "exhausted"
	ClaimError     = "error"
)

// NewCounters registers the shared metrics with r.
func NewCounters(r prometheus.Registerer) (*Counters, error) {
	m := &Counters{
		Writes:   Counter("api_writes_total", "Writes sent to the API server, by kind of object, purpose and result: ok, conflict, error.", "kind", "write", "result"),
		Claims:   Counter("claims_total", "Claims of blocks, by result: ok, taken, exhausted, error.", "pool", "family", "result"),
		Releases: Counter("releases_total", "Blocks deleted after they cooled down, by the reason of the cooldown: Returned, NodeGone.", "pool", "family", "reason"),
	}
	return m, Register(r, m.Writes, m.Claims, m.Releases)
}

// Register registers collectors with r.
func Register(r prometheus.Registerer, collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// namespace begins the names of all metrics of the operator.
const namespace = "cilium_pool"

// Counter is a counter of the operator.
func Counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// Gauge is a gauge of the operator.
func Gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// Histogram is a histogram of the operator, with the upper bounds of its buckets.
func Histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

// Number is a gauge of the operator without labels.
func Number(name, help string) prometheus.Gauge { return Gauge(name, help).WithLabelValues() }

// OneIf returns 1 if condition is true, else 0.
func OneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

// CountClaim counts a claim and its result.
func (m *Counters) CountClaim(pool string, f ipalloc.Family, result string) {
	m.Claims.WithLabelValues(pool, f.String(), result).Inc()
}

// CountFreed counts a released block.
func (m *Counters) CountFreed(b crd.Block) {
	m.Releases.WithLabelValues(b.Pool, ipalloc.FamilyOf(b.CIDR.Addr()).String(), string(b.Reason)).Inc()
}

// ForgetPool drops the series of a pool that is gone.
func (m *Counters) ForgetPool(pool string) {
	series := prometheus.Labels{"pool": pool}
	m.Claims.DeletePartialMatch(series)
	m.Releases.DeletePartialMatch(series)
}

const (
	// ConflictRetry is when to reconcile again after a write conflict.
	ConflictRetry = 100 * time.Millisecond
	// WatchRetry is when to reconcile again while the watch lags behind a write.
	WatchRetry = time.Second
)

// MaxBackoff is the longest wait after an error of a reconcile.
const MaxBackoff = 30 * time.Second

// NewRetries returns the waits after errors of reconciles. controller-runtime's own grow to 17 minutes.
func NewRetries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](20*time.Millisecond, MaxBackoff)
}

// RewordEvery is the least time between two writes of a status that change messages and figures alone. A change of a
// condition's status or reason is written at once.
const RewordEvery = time.Minute

// LongestWait is the longest wait before a controller tries something again without an event.
const LongestWait = time.Minute

// AfterConflict requeues after a conflict without reporting an error.
func AfterConflict(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: ConflictRetry}, nil
	}
	return reconcile.Result{}, err
}

// UntilShown drops a conflict where the watch queues the object again: it shows the version that the
// write lost to, however late. A retry before that would lose as well.
func UntilShown(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		err = nil
	}
	return reconcile.Result{}, err
}

// Sooner is the shorter of two waits, where 0 means none.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
