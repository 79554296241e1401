// Package holds measures the longest time that calls hold a lock.
//
// It measures and never judges.
package holds

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// Call is a method that takes a lock, with arguments to try.
type Call struct {
	// N is the number of different arguments, and Do calls the method with argument number i. The
	// whole call counts as one hold; use Hold for a method that takes its lock for one part of its
	// work at a time.
	N  int
	Do func(i int)
	// Hold, if set instead of Do, returns the longest hold in a call.
	Hold func(i int) time.Duration
	// Undo, if set, restores the state from before the call. Its time is not measured.
	Undo func(i int)
}

// Rounds is the number of repetitions of each call.
const Rounds = 9

// Longest returns the longest hold and the 99th percentile of the medians of each call's
// repetitions. A garbage collection, or another thread on the core, makes single calls take longer;
// to distort a median it would need to hit the same arguments in most rounds. All arguments are
// tried once before any is repeated.
func (c Call) Longest() (longest, p99 time.Duration) {
	times := make([][]time.Duration, c.N)
	for range Rounds {
		runtime.GC()
		for i := range c.N {
			times[i] = append(times[i], c.once(i))
			if c.Undo != nil {
				c.Undo(i)
			}
		}
	}
	return worst(times)
}

func (c Call) once(i int) time.Duration {
	if c.Hold != nil {
		return c.Hold(i)
	}
	begin := time.Now()
	c.Do(i)
	return time.Since(begin)
}

// worst returns the largest of the medians, and their 99th percentile by nearest rank.
func worst(times [][]time.Duration) (longest, p99 time.Duration) {
	medians := make([]time.Duration, 0, len(times))
	for _, t := range times {
		t = slices.Sorted(slices.Values(t))
		medians = append(medians, t[len(t)/2])
	}
	if len(medians) == 0 {
		return 0, 0
	}
	slices.Sort(medians)
	return medians[len(medians)-1], medians[(len(medians)*99+99)/100-1]
}

// Report measures a call and reports longest-ns and p99-ns.
func Report(b *testing.B, c Call) {
	b.Helper()
	var longest, p99 time.Duration
	for b.Loop() {
		longest, p99 = c.Longest()
	}
	b.ReportMetric(float64(longest.Nanoseconds()), "longest-ns")
	b.ReportMetric(float64(p99.Nanoseconds()), "p99-ns")
	b.ReportMetric(0, "ns/op") // covers all calls including Undo, so it has no meaning
}
