package main

import (
	"context"
	"net/http"
	"net/http/httptest"
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

func TestReadMetrics(t *testing.T) {
	body := `# HELP rest_client_requests_total Number of HTTP requests. 5
rest_client_requests_total{code="200",method="GET"} 5
rest_client_requests_total{code="201",method="POST"} 2
go_goroutines 151
go_gc_heap_live_bytes 1.5e+07
process_resident_memory_bytes 6e+07
`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
	defer server.Close()
	got, err := readMetrics(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"rest_client_requests_total": 7, "go_goroutines": 151, "go_gc_heap_live_bytes": 15e6} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	body = strings.ReplaceAll(body, "1.5e+07", "0")
	if got, err := readMetrics(t.Context(), server.URL); err != nil || got["go_gc_heap_live_bytes"] != 0 {
		t.Errorf("before the first collection of garbage: %v, %v", got, err)
	}
	body = strings.ReplaceAll(body, "go_goroutines", "goroutines")
	if _, err := readMetrics(context.Background(), server.URL); err == nil {
		t.Error("a metric that is missing is no error")
	}
}
