package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[99-i] = float64(i + 1)
	}
	tests := map[string]struct {
		values []float64
		p      float64
		want   float64
	}{
		"none":           {nil, 50, 0},
		"one":            {[]float64{3}, 99, 3},
		"p50 of hundred": {hundred, 50, 50},
		"p99 of hundred": {hundred, 99, 99},
		"max of hundred": {hundred, 100, 100},
		"p99 of three":   {[]float64{1, 9, 2}, 99, 9},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := percentile(test.values, test.p); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestCell(t *testing.T) {
	tests := map[string]struct {
		values, base []float64
		ratio        bool
		want         string
	}{
		"nothing":       {nil, nil, true, "-"},
		"one round":     {[]float64{5}, nil, false, "5"},
		"all the same":  {[]float64{5, 5}, nil, false, "5"},
		"spread":        {[]float64{1.5, 3, 2}, nil, false, "2 (1.50–3)"},
		"ratio":         {[]float64{3, 3, 3}, []float64{2, 2, 2}, true, "3, **1.50×**"},
		"ratio to zero": {[]float64{3}, []float64{0}, true, "3"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := cell(test.values, test.base, test.ratio); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAllocatorTable(t *testing.T) {
	got := allocatorTable([]string{
		"goos: linux",
		"BenchmarkClaim/1000/ipalloc-2         \t 100 \t 120.5 ns/op \t 125 cpu-ns/block \t 0 B/op \t 0 allocs/op",
		"BenchmarkClaim/1000/kubernetes-cidrset-2 \t 100 \t 150 ns/op \t 250 cpu-ns/block \t 64 B/op \t 3 allocs/op",
		"BenchmarkTaken/1000/ipalloc \t 10 \t 99 ns/op \t 88 cpu-ns/block \t 0 B/op \t 0 allocs/op",
		"BenchmarkRestore/1000/ipalloc-2 \t 10 \t 99000 ns/op \t 88.2 cpu-ns/block \t 1.1 x-smallest \t 55000 B/op \t 7 allocs/op",
		"PASS",
	})
	_, got, _ = strings.Cut(got, "\n\n")
	want := "| work | blocks held | ipalloc | kubernetes-cidrset |\n| --- | --- | --- | --- |\n" +
		"| claim | 1000 | 125 ns, 0 allocs | 250 ns, **2×**, 3 allocs |\n" +
		"| restore, in order | 1000 | 88.2 ns, 55 B | - |\n| look-up | 1000 | 88 ns | - |\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The plot and the table show the same curve, and the plot is well-formed.
func TestGrowth(t *testing.T) {
	r := results{Nodes: 200, Samples: []sample{
		{Measure: "cold", Contender: "floor: bare creates and pool patches", Nodes: 100, Values: map[string]float64{"seconds": 1}},
		{Measure: "cold", Contender: ours, Nodes: 100, Values: map[string]float64{"seconds": 2}},
		{Measure: "cold", Contender: ours, Nodes: 200, Values: map[string]float64{"seconds": 4}},
		{Measure: "cold", Contender: clusterPool, Nodes: 200, Values: map[string]float64{"seconds": 99}},
	}}
	if table := growthTable(r); !strings.Contains(table, "| cold start | cilium-pool-operator | 2 | 4 |\n") ||
		!strings.Contains(table, "| cold start | floor | 1 | - |\n") || strings.Contains(table, "99") {
		t.Errorf("the table is\n%s", table)
	}
	circles := 0
	for decoder := xml.NewDecoder(strings.NewReader(growthPlot(r))); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "circle" {
			circles++
		}
	}
	if circles != 3 {
		t.Errorf("%d points, not 3", circles)
	}
}

func TestAllocations(t *testing.T) {
	if err := allocations(); err != nil {
		t.Error(err)
	}
}
