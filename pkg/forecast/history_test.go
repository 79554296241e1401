package forecast_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/forecast"
)

func TestAt(t *testing.T) {
	h := []forecast.Sample{{At: noon(), Held: 5}, {At: noon().Add(time.Hour), Held: 7}}
	for offset, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 5, 59 * time.Minute: 5, time.Hour: 7, day: 7,
	} {
		if got := forecast.At(h, noon().Add(offset)); got != want {
			t.Errorf("noon %s: %d, want %d", offset, got, want)
		}
	}
}

func TestAdd(t *testing.T) {
	at := func(offset time.Duration, held int64) forecast.Sample {
		return forecast.Sample{At: noon().Add(offset), Held: held}
	}
	tests := map[string]struct {
		history []forecast.Sample
		held    int64
		want    []forecast.Sample
	}{
		"the first":        {held: 3, want: []forecast.Sample{at(0, 3)}},
		"no change":        {history: []forecast.Sample{at(-day, 3)}, held: 3, want: []forecast.Sample{at(-day, 3)}},
		"a change":         {history: []forecast.Sample{at(-day, 3)}, held: 4, want: []forecast.Sample{at(-day, 3), at(0, 4)}},
		"at the same time": {history: []forecast.Sample{at(-day, 3), at(0, 4)}, held: 5, want: []forecast.Sample{at(-day, 3), at(0, 5)}},
		"from a clock that ran ahead": {
			history: []forecast.Sample{at(-day, 3), at(time.Hour, 9)}, held: 4, want: []forecast.Sample{at(-day, 3), at(0, 4)},
		},
		"within minutes the last one counts": {
			history: []forecast.Sample{at(-day, 3), at(-66*time.Minute, 4), at(-65*time.Minute, 5), at(-64*time.Minute, 6)}, held: 7,
			want: []forecast.Sample{at(-day, 3), at(-66*time.Minute, 4), at(-64*time.Minute, 6), at(0, 7)},
		},
		"what is too old goes, but for how many were held there": {
			history: []forecast.Sample{at(-10*day, 1), at(-9*day, 2), at(-8*day, 3), at(-day, 4)}, held: 5,
			want: []forecast.Sample{at(-8*day, 3), at(-day, 4), at(0, 5)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(test.history)
			got := forecast.Add(test.history, noon(), test.held)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.history); diff != "" {
				t.Errorf("what was given has changed:\n%s", diff)
			}
		})
	}
}

// However often the number changes, few samples are kept, and what they show of any instant was
// true then, or at most an eighth of its age earlier.
func TestThinnedHistoryIsTrue(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for range 3 {
		var whole, kept []forecast.Sample
		now, most := noon(), 0
		pause := time.Duration(int64(2*time.Minute) + random.Int64N(int64(20*time.Minute)))
		for held := int64(0); now.Sub(noon()) < 10*day; held++ { // each number is held once
			now = now.Add(time.Second + time.Duration(random.Int64N(int64(pause))))
			whole = append(whole, forecast.Sample{At: now, Held: held})
			kept = forecast.Add(kept, now, held)
			most = max(most, len(kept))
		}
		if most > 100 {
			t.Errorf("%d samples were kept", most)
		}
		for range 300 {
			ago := time.Duration(random.Int64N(int64(forecast.Longest)))
			when, blur := now.Add(-ago), max(5*time.Minute, ago/8)+pause
			// A slot can be as long as an eighth of the age at which it begins.
			blur += blur / 8
			if got, earliest := forecast.At(kept, when), forecast.At(whole, when.Add(-blur)); got > forecast.At(whole, when) || got < earliest {
				t.Fatalf("%s ago %d were held, %d by the samples kept", ago, forecast.At(whole, when), got)
			}
		}
	}
}

func TestAtRest(t *testing.T) {
	h := []forecast.Sample{{At: noon(), Held: 1}, {At: noon().Add(time.Hour), Held: 2}}
	for offset, want := range map[time.Duration]bool{2 * time.Hour: false, forecast.Longest: false, forecast.Longest + 2*time.Hour: true} {
		if got := forecast.AtRest(noon().Add(offset), h); got != want {
			t.Errorf("noon %s: at rest %t, want %t", offset, got, want)
		}
	}
	if !forecast.AtRest(noon(), nil) {
		t.Error("no history is not at rest")
	}
}
