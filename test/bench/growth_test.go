package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The plot and the table show the same curve, and the plot is well-formed.
func TestGrowth(t *testing.T) {
	k := keep([]results{{Nodes: 200, Samples: []sample{
		{Measure: "cold", Contender: "floor: bare creates and pool patches", Nodes: 100, Values: map[string]float64{"seconds": 1}},
		{Measure: "cold", Contender: ours, Nodes: 100, Values: map[string]float64{"seconds": 3, "first s": 1, "cpu s": 8}},
		{Measure: "cold", Contender: ours, Nodes: 200, Values: map[string]float64{"seconds": 6, "first s": 1, "cpu s": 12}},
		{Measure: "cold", Contender: clusterPool, Nodes: 200, Values: map[string]float64{"seconds": 99}},
	}}})
	if table := growthTable(k); !strings.Contains(table, "| cold start, from the first node on | cilium-pool-operator | 2 | 5, **1.25×** |\n") ||
		!strings.Contains(table, "| own CPU, cold start | cilium-pool-operator | 8 | 12 |\n") ||
		!strings.Contains(table, "| cold start, from the first node on | floor | 1 | - |\n") || strings.Contains(table, "99") {
		t.Errorf("the table is\n%s", table)
	}
	circles := 0
	for decoder := xml.NewDecoder(strings.NewReader(growthPlot(k))); ; {
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

// What another machine measured shows no growth.
func TestGrowthOfOneMachine(t *testing.T) {
	of := func(kernel string, nodes int) results {
		return results{Kernel: kernel, Nodes: nodes, Samples: []sample{{Measure: "cold", Contender: ours, Nodes: nodes, Values: map[string]float64{"seconds": 1}}}}
	}
	k := keep([]results{of("a", growthBase), of("a", fullSize), of("b", 4*fullSize)})
	if table := growthTable(k); !strings.Contains(table, "| cold start, from the first node on | cilium-pool-operator | 1 | 1 |\n") {
		t.Errorf("the table is\n%s", table)
	}
	if len(k.by["cold"]) != 3 {
		t.Errorf("%d sizes have a table of their own, want 3", len(k.by["cold"]))
	}
}

// Growth runs exactly what its tables show, once, and no other contender.
func TestGrowthMeasures(t *testing.T) {
	shown := map[string]string{} // measure: floor
	for _, g := range grown() {
		shown[g.measure] = bare(g.floor).name
	}
	for _, g := range reactionGoals() {
		shown[g.measure] = g.of
	}
	want, got := map[string][]string{}, map[string][]string{}
	for name, floor := range shown {
		want[name] = []string{floor, ours}
	}
	for _, m := range growthMeasures() {
		for _, c := range m.contenders {
			got[m.name] = append(got[m.name], c.name)
		}
		if m.rounds != 1 {
			t.Errorf("%s: %d rounds", m.name, m.rounds)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Growth is judged relative to 1,250 nodes if that size was measured, and only above it.
func TestGrowthBase(t *testing.T) {
	tests := map[string]struct {
		points        []point
		want, outcome string
		base          int
	}{
		"from 1,250 nodes":        {[]point{{625, 20}, {1250, 10}, {5000, 60}}, "1.50", "**missed**", 1250},
		"from the smallest size":  {[]point{{625, 20}, {5000, 160}}, "1", "met", 625},
		"up to 1,250 nodes":       {[]point{{625, 20}, {1250, 10}}, notMeasured, "-", 1250},
		"from too little to tell": {[]point{{1250, 0}, {5000, 1}}, notMeasured, "-", 1250},
		"one size":                {[]point{{5000, 1}}, notMeasured, "-", 1250},
		"nothing":                 {nil, notMeasured, "-", 1250},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if text, outcome, base := (curve{points: test.points}).goal(); text != test.want || outcome != test.outcome || base != test.base {
				t.Errorf("%s, %s, at %d nodes, not %s, %s, at %d", text, outcome, base, test.want, test.outcome, test.base)
			}
		})
	}
	k := keep([]results{{Nodes: fullSize, Samples: []sample{
		{Measure: "rest", Contender: ours, Nodes: 625, Values: map[string]float64{"cpu s": 1}},
		{Measure: "rest", Contender: ours, Nodes: 1250, Values: map[string]float64{"cpu s": 3}},
		{Measure: "rest", Contender: ours, Nodes: 2500, Values: map[string]float64{"cpu s": 9}},
	}}})
	if table := growthTable(k); !strings.Contains(table, "| own CPU at rest | cilium-pool-operator | 1 | 3 | 9, **1.50×** |\n") {
		t.Errorf("the table is\n%s", table)
	}
}
