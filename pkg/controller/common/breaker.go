package common

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

const (
	// refusedSubjects is the number of subjects from which on refusals count as those of a kind of write.
	refusedSubjects = 3
	// firstProbe and lastProbe are the waits between the tries of a kind of write that is refused.
	firstProbe = time.Second
	lastProbe  = 10 * time.Second
)

// Unsent is the error of a write that was not sent, as the API server refuses its kind.
type Unsent struct {
	// Err is the last answer to a write of the kind.
	Err error
}

func (e *Unsent) Error() string {
	return "not sent, as the API server refuses such writes: " + e.Err.Error()
}

// Unwrap returns that answer.
func (e *Unsent) Unwrap() error { return e.Err }

// IsUnsent reports whether err is that of a write that was not sent.
func IsUnsent(err error) bool {
	var unsent *Unsent
	return errors.As(err, &unsent)
}

// Breaker is a client that does not repeat writes that the API server refuses for a reason that holds
// for their kind: a role, a webhook that is down, a kind that is gone. Once it refuses a kind of write
// for several subjects, they share one try, less and less often, until it accepts a write of one of them. A
// subject that it has not refused is not delayed, as the reason may concern the others alone. The subject
// of a block is its node, and of any other object its name.
type Breaker struct {
	client.Client
	clock clock.PassiveClock

	mu    sync.Mutex
	kinds map[string]*refusedKind
	waits workqueue.TypedRateLimiter[string]
}

// refusedKind is a kind of write that the API server refuses.
type refusedKind struct {
	subjects map[string]bool
	// next is the time of the next try, and err the last answer.
	next time.Time
	err  error
}

// NewBreaker returns a Breaker that writes with a client.
func NewBreaker(c client.Client, clk clock.PassiveClock) *Breaker {
	return &Breaker{
		Client: c, clock: clk, kinds: map[string]*refusedKind{},
		waits: workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstProbe, lastProbe),
	}
}

// Create calls the client's Create.
func (b *Breaker) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return b.do("create", obj, func() error { return b.Client.Create(ctx, obj, opts...) })
}

// Update calls the client's Update.
func (b *Breaker) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return b.do("update", obj, func() error { return b.Client.Update(ctx, obj, opts...) })
}

// Patch calls the client's Patch.
func (b *Breaker) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return b.do("patch", obj, func() error { return b.Client.Patch(ctx, obj, patch, opts...) })
}

// Delete calls the client's Delete.
func (b *Breaker) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return b.do("delete", obj, func() error { return b.Client.Delete(ctx, obj, opts...) })
}

// Status writes the status of objects likewise.
func (b *Breaker) Status() client.SubResourceWriter { return statusBreaker{b.Client.Status(), b} }

type statusBreaker struct {
	client.SubResourceWriter
	*Breaker
}

func (s statusBreaker) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return s.do("create status", obj, func() error { return s.SubResourceWriter.Create(ctx, obj, sub, opts...) })
}

func (s statusBreaker) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.do("update status", obj, func() error { return s.SubResourceWriter.Update(ctx, obj, opts...) })
}

func (s statusBreaker) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.do("patch status", obj, func() error { return s.SubResourceWriter.Patch(ctx, obj, patch, opts...) })
}

// do sends a write, unless its kind is refused and it is not its turn.
func (b *Breaker) do(verb string, obj client.Object, send func() error) error {
	kind := fmt.Sprintf("%s %T", verb, obj)
	if untyped, ok := obj.(*unstructured.Unstructured); ok {
		kind = verb + " " + untyped.GetKind()
	}
	subject := obj.GetNamespace() + "/" + obj.GetName()
	if block, ok := obj.(*v1alpha1.PodIPBlock); ok && block.Spec.NodeName != "" {
		subject = block.Spec.NodeName
	}
	if last := b.reasonToWait(kind, subject); last != nil {
		return &Unsent{last}
	}
	err := send()
	b.sent(kind, subject, err)
	return err
}

// reasonToWait returns the reason not to send a write now; nil: there is none.
func (b *Breaker) reasonToWait(kind, subject string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	refused := b.kinds[kind]
	now := b.clock.Now()
	if refused == nil || len(refused.subjects) < refusedSubjects || !refused.subjects[subject] {
		return nil
	}
	if now.Before(refused.next) {
		return refused.err
	}
	refused.next = now.Add(b.waits.When(kind))
	return nil
}

// sent records the answer to a write.
func (b *Breaker) sent(kind, subject string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	refused := b.kinds[kind]
	if err == nil || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // these come after all reasons
		if refused != nil && refused.subjects[subject] {
			delete(b.kinds, kind)
			b.waits.Forget(kind)
		}
		return
	}
	if !concernsKind(kind, err) {
		return
	}
	if refused == nil {
		refused = &refusedKind{subjects: map[string]bool{}}
		b.kinds[kind] = refused
	}
	refused.subjects[subject] = true
	refused.err = err
}

// isDenied reports whether a webhook or an admission policy has denied a write.
func isDenied(err error) bool {
	text := err.Error()
	return strings.Contains(text, "denied the request") || strings.Contains(text, "denied request")
}

// concernsKind reports whether the API server may refuse any write of the kind for this reason.
func concernsKind(kind string, err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || isDenied(err) ||
		apierrors.IsNotFound(err) && strings.HasPrefix(kind, "create ") ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}
