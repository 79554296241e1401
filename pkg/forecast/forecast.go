// Package forecast estimates when a pool will have no free block left, from how many
// of its blocks were held in the past.
//
// It reads no clock, logs nothing, and knows nothing of Kubernetes.
//
// What others do is a straight line of least squares through the last hours,
// drawn on for days (predict_linear of Prometheus). One burst bends that line for
// as long as it is in the window, which is what made KubePersistentVolumeFillingUp
// flap (kubernetes-monitoring/kubernetes-mixin, issues 54 and 98). Here two rules
// take its place:
//
//   - A growth is expected to go on for as long as it has gone on, and no longer.
//   - A growth is what three quarters of all pairs of samples in the window have
//     in common: the lower quartile of their slopes. (The median of them is the
//     estimator of Theil and Sen.) So one burst is none, wherever in the window it
//     lies, as long as it takes no more than a quarter of the window. And it must
//     go on: what has not grown in the last third of the window does not count.
package forecast

import (
	"slices"
	"time"
)

// points is at how many instants a window is sampled, in equal steps.
const points = 13

// windows returns the times over which growth is measured, the shortest first: each about three
// times the one before, and all that is known, if that is longer.
func windows(known time.Duration) []time.Duration {
	const hour, day = time.Hour, 24 * time.Hour
	known = min(known, Longest)
	var out []time.Duration
	for _, w := range []time.Duration{hour, 3 * hour, 8 * hour, day, 3 * day, Longest} {
		if w <= known {
			out = append(out, w)
		}
	}
	if n := len(out); n > 0 && out[n-1] < known {
		out = append(out, known)
	}
	return out
}

// Longest is how far a forecast reaches back, and how far ahead at most.
const Longest = 7 * 24 * time.Hour

// typical is the window whose growth is reported if no end is in sight.
const typical = 24 * time.Hour

// Estimate is the forecast for a pool.
type Estimate struct {
	// Over is the time over which PerHour was observed. Zero: nothing is known yet, because the
	// history is shorter than an hour.
	Over time.Duration
	// PerHour is the hourly change in held blocks. Negative: their number falls.
	PerHour float64
	// Expected: the pool is expected to have no free block left in Left.
	Expected bool
	Left     time.Duration
}

// Expect estimates from a history of held blocks, oldest first, when a pool with
// so many free blocks will have none. patience is how many times as long as it
// has been seen a growth is expected to go on: 1, or more where an exhaustion is
// expected already, so that the answer does not flap.
//
// Of a pool that has no free block now nothing is expected.
func Expect(now time.Time, history []Sample, free int64, patience float64) Estimate {
	var best, usual Estimate
	if len(history) == 0 {
		return usual
	}
	for _, window := range windows(now.Sub(history[0].At)) {
		perHour := growth(now, history, window)
		e := Estimate{Over: window, PerHour: perHour}
		if window <= typical {
			usual = e
		}
		if perHour <= 0 || free <= 0 {
			continue
		}
		hours := float64(free) / perHour
		if hours > patience*window.Hours() || best.Expected && hours >= best.Left.Hours() {
			continue
		}
		e.Expected, e.Left = true, time.Duration(hours*float64(time.Hour))
		best = e
	}
	if best.Expected {
		return best
	}
	return usual
}

// growth returns the hourly growth in held blocks in the window that ends now, which the
// history must cover.
func growth(now time.Time, history []Sample, window time.Duration) float64 {
	var held [points]float64
	for i := range held {
		held[i] = float64(At(history, now.Add(window*time.Duration(i)/(points-1)-window)))
	}
	slopes := make([]float64, 0, points*(points-1)/2)
	for i := range held {
		for j := i + 1; j < points; j++ {
			slopes = append(slopes, (held[j]-held[i])/float64(j-i))
		}
	}
	slices.Sort(slopes)
	lately := held[points-1] - held[(points-1)*2/3]
	// A decrease is measured like an increase: by what three quarters have in common.
	perStep := 0.0
	if grows := slopes[len(slopes)/4]; grows > 0 && lately > 0 {
		perStep = grows
	} else if shrinks := slopes[len(slopes)*3/4]; shrinks < 0 && lately < 0 {
		perStep = shrinks
	}
	return perStep * (points - 1) / window.Hours()
}
