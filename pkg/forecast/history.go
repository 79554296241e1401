package forecast

import (
	"slices"
	"time"
)

// Sample is the number of blocks held from an instant until the next sample. So a history at
// rest needs no new ones.
type Sample struct {
	At   time.Time
	Held int64
}

// finest is the minimum distance between two samples.
const finest = 5 * time.Minute

// At returns how many blocks were held at an instant, and 0 before the first sample.
func At(history []Sample, when time.Time) int64 {
	after, _ := slices.BinarySearchFunc(history, when, func(s Sample, t time.Time) int {
		if s.At.After(t) {
			return 1
		}
		return -1
	})
	if after == 0 {
		return 0
	}
	return history[after-1].Held
}

// Add records that this many blocks are held now. It returns the history unchanged if the
// number has not changed. Otherwise it drops what no forecast uses: the older, the fewer
// samples are kept, less than a hundred in all. It also drops samples that are not before now,
// from a clock that ran ahead.
func Add(history []Sample, now time.Time, held int64) []Sample {
	if n := len(history); n > 0 && history[n-1].Held == held {
		return history
	}
	out := slices.DeleteFunc(slices.Clone(history), func(s Sample) bool { return !s.At.Before(now) })
	return thin(append(out, Sample{At: now, Held: held}), now)
}

// thin keeps the last sample of each slot of time, the first of all, and one of at least the
// age of Longest, which shows how many were held then.
func thin(history []Sample, now time.Time) []Sample {
	first := 0
	for i, s := range history {
		if now.Sub(s.At) >= Longest {
			first = i
		}
	}
	history = history[first:]
	out := history[:1:1]
	for i := 1; i < len(history); i++ {
		if i+1 < len(history) && slot(history[i].At, now).Equal(slot(history[i+1].At, now)) {
			continue
		}
		out = append(out, history[i])
	}
	return out
}

// slot returns the interval in which one sample is kept: an eighth of its age long or less, and
// at least finest. Slots of one length are adjacent, and two of them make one of the next, so
// that what is kept does not depend on how often something was added.
func slot(at, now time.Time) time.Time {
	size := finest
	for 16*size <= now.Sub(at) {
		size *= 2
	}
	return at.Truncate(size)
}

// AtRest reports whether time alone changes no forecast from this history.
func AtRest(now time.Time, history []Sample) bool {
	n := len(history)
	return n == 0 || now.Sub(history[n-1].At) > Longest
}
