package holds

import (
	"slices"
	"testing"
	"time"
)

func TestWorst(t *testing.T) {
	hundred := make([][]time.Duration, 100)
	for i := range hundred {
		hundred[i] = []time.Duration{time.Duration(i + 1)}
	}
	tests := map[string]struct {
		times        [][]time.Duration
		longest, p99 time.Duration
	}{
		"no call":                  {},
		"one call":                 {[][]time.Duration{{3}}, 3, 3},
		"a collection in one of 3": {[][]time.Duration{{2, 900, 1}, {3, 3, 3}}, 3, 3},
		"slow each time":           {[][]time.Duration{{1, 1, 1}, {9, 7, 8}}, 8, 8},
		"a hundred calls":          {hundred, 100, 99},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if longest, p99 := worst(test.times); longest != test.longest || p99 != test.p99 {
				t.Errorf("got %d and %d, want %d and %d", longest, p99, test.longest, test.p99)
			}
		})
	}
}

// Longest tries every argument in each round, undoes each call, and uses the hold that a
// call reports itself.
func TestRepetitions(t *testing.T) {
	var done []int
	c := Call{N: 3, Hold: func(i int) time.Duration { done = append(done, i); return time.Duration(i) }, Undo: func(i int) { done = append(done, -i) }}
	if longest, _ := c.Longest(); longest != 2 {
		t.Errorf("the longest is %d", longest)
	}
	if want := slices.Repeat([]int{0, 0, 1, -1, 2, -2}, Rounds); !slices.Equal(done, want) {
		t.Errorf("called %v, want %v", done, want)
	}
}
