package harness

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A long wait costs little, and yet ends soon after its condition.
func TestSoonSlowsDown(t *testing.T) {
	for _, test := range []struct {
		after, late time.Duration
		polls       int
	}{
		{after: 50 * time.Millisecond, late: 10 * time.Millisecond, polls: 7},
		{after: time.Second, late: 100 * time.Millisecond, polls: 40},
		{after: time.Minute, late: 100 * time.Millisecond, polls: 700},
	} {
		t.Run(test.after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, polls := time.Now(), 0
				Must(t, Soon(t.Context(), 10*time.Millisecond, func(context.Context) error {
					if polls++; time.Since(began) < test.after {
						return errors.New("not yet")
					}
					return nil
				}))
				if took := time.Since(began); took > test.after+test.late || polls > test.polls {
					t.Errorf("it took %s and %d polls, want at most %s later and %d polls", took, polls, test.late, test.polls)
				}
			})
		})
	}
}

func TestUntilSaysWhatHeldLast(t *testing.T) {
	cause, last := errors.New("the test ends"), errors.New("it has two blocks")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := Until(ctx, time.Millisecond, func(context.Context) error {
		cancel(cause)
		return last
	})
	if !errors.Is(err, cause) || !errors.Is(err, last) {
		t.Errorf("got %v, want both %v and %v", err, cause, last)
	}
}
