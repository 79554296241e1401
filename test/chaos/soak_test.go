package main

import (
	"strings"
	"testing"
)

// TestGrowthIsFound plants growth of each kind, and changes that are not growth.
func TestGrowthIsFound(t *testing.T) {
	const rounds = 40
	steady := sample{Goroutines: 150, Heap: 20 << 20, Resident: 60 << 20, Requests: 3000, AtRest: 6}
	for name, test := range map[string]struct {
		change func(round int, s *sample)
		want   string // in the error; empty: there is none
	}{
		"nothing":                     {change: func(int, *sample) {}},
		"a goroutine a round":         {change: func(i int, s *sample) { s.Goroutines += float64(2 * i) }, want: "goroutines"},
		"a leak of half a megabyte":   {change: func(i int, s *sample) { s.Heap += float64(i << 19) }, want: "live heap"},
		"memory that is not the heap": {change: func(i int, s *sample) { s.Resident += float64(i << 21) }, want: "resident memory"},
		"work that adds up":           {change: func(i int, s *sample) { s.Requests += float64(100 * i) }, want: "requests of a round"},
		"a retry that never ends":     {change: func(i int, s *sample) { s.AtRest += float64(i) }, want: "requests at rest"},
		"what fills up in the first quarter": {change: func(i int, s *sample) {
			if i < rounds/4 {
				*s = sample{Goroutines: 20, Heap: 5 << 20, Resident: 30 << 20, Requests: 500}
			}
		}},
		"bursts": {change: func(i int, s *sample) {
			if i%3 == 0 {
				*s = sample{Goroutines: 600, Heap: 80 << 20, Resident: 200 << 20, Requests: 9000, AtRest: 60}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var samples []sample
			for i := range rounds {
				s := steady
				test.change(i, &s)
				samples = append(samples, s)
			}
			err := grown(samples)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if grown(make([]sample, leastRounds-1)) == nil {
		t.Error("too few rounds pass")
	}
}
