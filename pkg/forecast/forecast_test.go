package forecast_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cilium-pool/cilium-pool-operator/pkg/forecast"
)

func noon() time.Time { return time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC) }

// past returns a history up to noon in steps of five minutes, which began this long ago.
func past(began time.Duration, held func(ago time.Duration) float64) []forecast.Sample {
	var h []forecast.Sample
	for ago := began; ago >= 0; ago -= 5 * time.Minute {
		h = forecast.Add(h, noon().Add(-ago), int64(math.Round(held(ago))))
	}
	return h
}

// steady grows at this hourly rate.
func steady(perHour float64) func(time.Duration) float64 {
	return func(ago time.Duration) float64 { return 100000 - perHour*ago.Hours() }
}

// burst adds this many blocks, evenly over length, beginning this long ago.
func burst(size float64, began, length time.Duration) func(time.Duration) float64 {
	return func(ago time.Duration) float64 {
		done := float64(began-ago) / float64(max(length, 1))
		return 1000 + size*min(max(done, 0), 1)
	}
}

func sum(parts ...func(time.Duration) float64) func(time.Duration) float64 {
	return func(ago time.Duration) float64 {
		total := 0.0
		for _, p := range parts {
			total += p(ago)
		}
		return total
	}
}

const day = 24 * time.Hour

func TestExpect(t *testing.T) {
	tests := map[string]struct {
		history  []forecast.Sample
		free     int64
		patience float64
		want     forecast.Estimate
	}{
		"nothing is known": {free: 100},
		"half an hour predicts nothing": {
			history: past(30*time.Minute, steady(60)), free: 10,
		},
		"no change": {
			history: past(2*day, steady(0)), free: 10, want: forecast.Estimate{Over: day},
		},
		"steady growth is expected to go on as long as it has gone on": {
			history: past(day, steady(20)), free: 400,
			want: forecast.Estimate{Over: day, PerHour: 20, Expected: true, Left: 20 * time.Hour},
		},
		"and no longer": {
			history: past(day, steady(20)), free: 600, want: forecast.Estimate{Over: day, PerHour: 20},
		},
		"but longer where an end is expected already": {
			history: past(day, steady(20)), free: 600, patience: 1.5,
			want: forecast.Estimate{Over: day, PerHour: 20, Expected: true, Left: 30 * time.Hour},
		},
		"three days of growth predict the next three": {
			history: past(3*day, steady(20)), free: 1200,
			want: forecast.Estimate{Over: 3 * day, PerHour: 20, Expected: true, Left: 60 * time.Hour},
		},
		"what has begun an hour ago predicts the next hour": {
			history: past(2*day, func(ago time.Duration) float64 { return 1000 - 600*min(ago.Hours(), 1) }), free: 400,
			want: forecast.Estimate{Over: time.Hour, PerHour: 600, Expected: true, Left: 40 * time.Minute},
		},
		"what has stopped a while ago does not go on": {
			history: past(day, func(ago time.Duration) float64 { return 1000 - 20*max(ago.Hours(), 9) }), free: 100,
			want: forecast.Estimate{Over: day},
		},
		"a cold start of 500 nodes is no rate": {
			history: past(day, burst(500, 12*time.Hour, 10*time.Minute)), free: 10, want: forecast.Estimate{Over: day},
		},
		"a burst on steady growth leaves the growth": {
			history: past(day, sum(steady(20), burst(500, 12*time.Hour, 10*time.Minute))), free: 400,
			want: forecast.Estimate{Over: day, PerHour: 20, Expected: true, Left: 20 * time.Hour},
		},
		"a block every four hours": {
			history: past(3*day, func(ago time.Duration) float64 { return 100 - math.Floor(ago.Hours()/4) }), free: 5,
			want: forecast.Estimate{Over: 3 * day, PerHour: 0.25, Expected: true, Left: 20 * time.Hour},
		},
		"a pool that shrinks": {
			history: past(day, steady(-20)), free: 400, want: forecast.Estimate{Over: day, PerHour: -20},
		},
		"a scale-down is no rate either": {
			history: past(day, burst(-500, 12*time.Hour, 10*time.Minute)), free: 400, want: forecast.Estimate{Over: day},
		},
		"what is exhausted is no matter of the future": {
			history: past(day, steady(20)), free: 0, want: forecast.Estimate{Over: day, PerHour: 20},
		},
		"samples of the future are not there yet": {
			history: append(past(day, steady(0)), forecast.Sample{At: noon().Add(time.Hour), Held: 999999}), free: 400,
			want: forecast.Estimate{Over: day},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := forecast.Expect(noon(), test.history, test.free, max(test.patience, 1))
			// A rate is accurate to one block in the time it was observed, and to one slot of
			// the history.
			near := cmpopts.EquateApprox(0.07, 0.01)
			roughly := cmp.Comparer(func(a, b time.Duration) bool {
				return math.Abs(float64(a-b)) <= 0.07*max(math.Abs(float64(a)), math.Abs(float64(b)))
			})
			if diff := cmp.Diff(test.want, got, near, roughly); diff != "" {
				t.Errorf("estimate (-want +got):\n%s", diff)
			}
		})
	}
}

// A single burst, of any size and at any time, that lasts a quarter of an hour or less predicts
// no exhaustion, however little is left.
func TestBurstIsNoRate(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		began := time.Duration(random.Int64N(int64(8 * day)))
		length := time.Duration(random.Int64N(int64(15 * time.Minute)))
		h := past(max(began, time.Duration(random.Int64N(int64(8*day)))), burst(float64(1+random.IntN(5000)), began, length))
		if e := forecast.Expect(noon(), h, 1, 1); e.Expected {
			t.Fatalf("a burst %s ago, over %s: %+v", began, length, e)
		}
	}
}

// Nodes that come each morning and go each evening do not exhaust a pool that has room for
// them.
func TestDailyCycleIsNoGrowth(t *testing.T) {
	const swing = 300
	cycle := func(ago time.Duration) float64 { return 1000 + swing/2*math.Sin(2*math.Pi*ago.Hours()/24) }
	var h []forecast.Sample
	for ago := 9 * day; ago >= 0; ago -= 5 * time.Minute {
		now := noon().Add(-ago)
		held := int64(cycle(ago))
		h = forecast.Add(h, now, held)
		if e := forecast.Expect(now, h, 2000-held, 1); e.Expected {
			t.Fatalf("%s before the end: %+v", ago, e)
		}
	}
}

// randomHistory returns a history with growth, bursts, and pauses.
func randomHistory(random *rand.Rand) []forecast.Sample {
	parts := []func(time.Duration) float64{steady(math.Round(random.NormFloat64() * 20))}
	for range random.IntN(5) {
		parts = append(parts, burst(float64(random.IntN(2000)-1000),
			time.Duration(random.Int64N(int64(8*day))), time.Duration(random.Int64N(int64(6*time.Hour)))))
	}
	return past(time.Duration(random.Int64N(int64(9*day))), sum(parts...))
}

func TestProperties(t *testing.T)     { properties(t, 15) }
func TestLongProperties(t *testing.T) { properties(t, 60) }

func properties(t *testing.T, histories int) {
	t.Helper()
	random := rand.New(rand.NewPCG(2, 2))
	expected := 0
	for range histories {
		h, free, patience := randomHistory(random), random.Int64N(5000), 1+random.Float64()
		e := forecast.Expect(noon(), h, free, patience)
		if e.Expected {
			expected++
			if e.PerHour <= 0 || e.Left.Hours() > patience*e.Over.Hours() || free == 0 {
				t.Fatalf("%d free, patience %f: %+v", free, patience, e)
			}
			if got := e.PerHour * e.Left.Hours(); math.Abs(got-float64(free)) > 0.01*float64(free) {
				t.Fatalf("%d free, and %f claimed until then: %+v", free, got, e)
			}
		}
		if e.Over > 0 && noon().Add(-e.Over).Before(h[0].At) {
			t.Fatalf("the history begins %s before noon: %+v", noon().Sub(h[0].At), e)
		}
		// Only changes of the number matter, not the number itself.
		shifted := slices.Clone(h)
		for i := range shifted {
			shifted[i].Held += 4711
		}
		if other := forecast.Expect(noon(), shifted, free, patience); other != e {
			t.Fatalf("shifted: %+v, was %+v", other, e)
		}
		// More free blocks last longer.
		if more := forecast.Expect(noon(), h, free+1+random.Int64N(100), patience); free > 0 && more.Expected && (!e.Expected || more.Left <= e.Left) {
			t.Fatalf("%d free: %+v, more: %+v", free, e, more)
		}
		// More patience never predicts a later end.
		if other := forecast.Expect(noon(), h, free, patience+1); e.Expected && (!other.Expected || other.Left > e.Left) {
			t.Fatalf("patience %f: %+v, one more: %+v", patience, e, other)
		}
	}
	if expected < histories/10 {
		t.Errorf("an end was expected in %d of %d histories only", expected, histories)
	}
}
