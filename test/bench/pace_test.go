package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// Actions begin when they are due. Slow ones lower the rate only while all workers are
// busy, and late ones catch up.
func TestPace(t *testing.T) {
	tests := map[string]struct {
		pace pace
		slow map[int]time.Duration // duration of these actions, by number
		want []time.Duration       // when each began
	}{
		"none":             {pace{rate: 10, atOnce: 2}, nil, []time.Duration{}},
		"in time":          {pace{rate: 10, total: 3, atOnce: 1}, nil, []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond}},
		"one is slow":      {pace{rate: 10, total: 4, atOnce: 2}, map[int]time.Duration{0: time.Second}, []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}},
		"late, caught up":  {pace{rate: 10, total: 4, atOnce: 1}, map[int]time.Duration{0: 250 * time.Millisecond}, []time.Duration{0, 250 * time.Millisecond, 250 * time.Millisecond, 300 * time.Millisecond}},
		"workers are busy": {pace{rate: 10, total: 4, atOnce: 2}, map[int]time.Duration{0: time.Second, 1: time.Second}, []time.Duration{0, 100 * time.Millisecond, time.Second, time.Second}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				got, begin := make([]time.Duration, test.pace.total), time.Now()
				done, err := test.pace.run(t.Context(), func(n int) error {
					mu.Lock()
					got[n] = time.Since(begin)
					mu.Unlock()
					time.Sleep(test.slow[n])
					return nil
				})
				if err != nil || done != test.pace.total {
					t.Errorf("%d are done: %v", done, err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Without a total it continues until the context ends; actions under way complete and
// count.
func TestPaceEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 450*time.Millisecond)
		defer cancel()
		done, err := pace{rate: 10, total: -1, atOnce: 2}.run(ctx, func(int) error {
			time.Sleep(80 * time.Millisecond)
			return nil
		})
		if err != nil || done != 5 {
			t.Errorf("%d are done: %v", done, err)
		}
	})
}

// The first error ends the run, also for workers that wait for their turn.
func TestPaceEndsWithError(t *testing.T) {
	wrong := errors.New("wrong")
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		done, err := pace{rate: 1, total: 100, atOnce: 4}.run(t.Context(), func(n int) error {
			if n == 2 {
				return wrong
			}
			return nil
		})
		if !errors.Is(err, wrong) || done != 2 || time.Since(begin) != 2*time.Second {
			t.Errorf("%d are done after %v: %v", done, time.Since(begin), err)
		}
	})
}

// It returns when each node was done; the rate follows from these times.
func TestPaceOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		got, err := pace{rate: 10, total: 3, atOnce: 2}.nodes(t.Context(), func(k int) (int, error) {
			time.Sleep(50 * time.Millisecond)
			return 7 - k, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		at := func(ms time.Duration) time.Time { return begin.Add(ms * time.Millisecond) }
		if diff := cmp.Diff(map[string]time.Time{bed.NodeName(7): at(50), bed.NodeName(6): at(150), bed.NodeName(5): at(250)}, got); diff != "" {
			t.Error(diff)
		}
		if rate := reached(got); rate != 10 {
			t.Errorf("the rate is %v", rate)
		}
	})
}

// A context that ends before all nodes are done is an error.
func TestPaceOfNodesCutShort(t *testing.T) {
	tired := errors.New("out of patience")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, tired)
		defer cancel()
		got, err := pace{rate: 2, total: 100, atOnce: 2}.nodes(ctx, func(k int) (int, error) { return k, nil })
		if !errors.Is(err, tired) {
			t.Errorf("%d nodes: %v", len(got), err)
		}
	})
}

func TestReached(t *testing.T) {
	now := time.Now()
	tests := map[string]struct {
		at   map[string]time.Time
		want float64
	}{
		"none":       {nil, 0},
		"one":        {map[string]time.Time{"a": now}, 0},
		"at once":    {map[string]time.Time{"a": now, "b": now}, 0},
		"per second": {map[string]time.Time{"b": now.Add(time.Second), "a": now, "c": now.Add(500 * time.Millisecond)}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := reached(test.at); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
