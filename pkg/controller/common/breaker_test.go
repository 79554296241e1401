package common

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// blockOf is a block of a node.
func blockOf(node string) *v1alpha1.PodIPBlock {
	obj := &v1alpha1.PodIPBlock{}
	obj.Name, obj.Spec.NodeName = "of-"+node, node
	return obj
}

// server is a Breaker with an answer to each write. It counts the writes.
type server struct {
	*Breaker
	clock  *clocktesting.FakePassiveClock
	answer func(node string) error
	sent   int
}

func newServer() *server {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	return &server{Breaker: NewBreaker(nil, clock), clock: clock}
}

// create sends a create for a node, and reports whether it reached the API server.
func (s *server) create(node string) (reached bool, err error) {
	err = s.do("create", blockOf(node), func() error {
		reached = true
		s.sent++
		return s.answer(node)
	})
	return reached, err
}

// Nodes with refused creates share one try; any other node is not delayed.
func TestRefusedKindIsTriedSeldom(t *testing.T) {
	const nodes = 500
	forbidden := apierrors.NewForbidden(blocks, "b", errors.New("cannot create"))
	s := newServer()
	s.answer = func(string) error { return forbidden }
	round := func() {
		for i := range nodes {
			if _, err := s.create(fmt.Sprint("n", i)); !errors.Is(err, forbidden) {
				t.Fatalf("the create of n%d: %v", i, err)
			}
		}
	}
	round()
	if s.sent != nodes {
		t.Errorf("%d of %d nodes have had a try", s.sent, nodes)
	}
	s.sent = 0
	for range 600 {
		s.clock.SetTime(s.clock.Now().Add(time.Second))
		round()
	}
	if s.sent < 10*60/11 || s.sent > 10*60/10+5 {
		t.Errorf("%d creates in ten minutes", s.sent)
	}
	s.answer = func(node string) error {
		if node == "new" {
			return nil
		}
		return forbidden
	}
	if reached, err := s.create("new"); !reached || err != nil {
		t.Errorf("a new node waits for others: %t, %v", reached, err)
	}
	if reached, _ := s.create("n1"); reached {
		t.Error("the success of a node that was not refused ends the waits of the others")
	}
	s.answer = func(string) error { return nil }
	s.clock.SetTime(s.clock.Now().Add(lastProbe))
	for i := range nodes {
		if reached, err := s.create(fmt.Sprint("n", i)); !reached || err != nil {
			t.Fatalf("n%d still waits once the refusals have ended: %v", i, err)
		}
	}
}

func TestKindsOfRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		held bool
	}{
		"a role":              {apierrors.NewForbidden(blocks, "b", errors.New("cannot create")), true},
		"a token":             {apierrors.NewUnauthorized("no"), true},
		"a webhook":           {webhook("no"), true},
		"a webhook is down":   {apierrors.NewInternalError(errors.New(`failed calling webhook "x"`)), true},
		"the kind is gone":    {apierrors.NewNotFound(blocks, "b"), true},
		"the object is wrong": {apierrors.NewInvalid(schema.GroupKind{Kind: "PodIPBlock"}, "b", nil), false},
		"a conflict":          {apierrors.NewConflict(blocks, "b", errors.New("changed")), false},
		"a timeout":           {apierrors.NewTimeoutError("slow", 1), false},
		"no answer":           {errors.New("connection refused"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			s.answer = func(string) error { return test.err }
			for _, node := range []string{"n", "n", "n", "a", "n", "b"} { // for fewer nodes the queue's backoff is enough
				if reached, _ := s.create(node); !reached {
					t.Fatalf("a refusal of few holds back %s", node)
				}
			}
			_, _ = s.create("n") // the first shared try
			reached, err := s.create("n")
			if reached == test.held || !errors.Is(err, test.err) || IsUnsent(err) != test.held {
				t.Errorf("sent %t: %v", reached, err)
			}
			if err := s.do("patch", blockOf("n"), func() error { return nil }); err != nil {
				t.Errorf("another kind of write: %v", err)
			}
		})
	}
}
