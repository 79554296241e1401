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
	floor := "floor: bare creates and pool patches"
	k := keep([]results{{Commit: "abc", Nodes: 200, Samples: []sample{
		{Measure: "cold", Contender: floor, Nodes: 100, Values: map[string]float64{"seconds": 1, "first s": 0, "cpu s": 7}},
		{Measure: "cold", Contender: floor, Nodes: 200, Values: map[string]float64{"seconds": 77}},
		{Measure: "cold", Contender: ours, Nodes: 100, Values: map[string]float64{"seconds": 3, "first s": 1, "cpu s": 8, firstCPU: 3}},
		{Measure: "cold", Contender: ours, Nodes: 200, Values: map[string]float64{"seconds": 6, "first s": 1, "cpu s": 14.04, firstCPU: 3}},
		{Measure: "cold", Contender: clusterPool, Nodes: 200, Values: map[string]float64{"seconds": 99}},
	}}})
	if table := growthTable(k); !strings.Contains(table, "| cold start, from the first node on | cilium-pool-operator | 2 | 5, **1.25×** | abc |\n") ||
		!strings.Contains(table, "| own CPU, cold start, from the first node on | cilium-pool-operator | 5 | 11.0, **1.104×** | abc |\n") ||
		// What lacks the value to subtract is not shown.
		!strings.Contains(table, "| cold start, from the first node on | floor | 1 | - | abc |\n") ||
		!strings.Contains(table, "| own CPU, cold start, from the first node on | floor | - | - | - |\n") || strings.Contains(table, "| 99") {
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
		return results{Kernel: kernel, Commit: "abc", Nodes: nodes, Samples: []sample{{Measure: "storm", Contender: ours, Nodes: nodes, Values: map[string]float64{"seconds": 1}}}}
	}
	k := keep([]results{of("a", growthBase), of("a", fullSize), of("b", 4*fullSize)})
	if table := growthTable(k); !strings.Contains(table, "| scale-up storm | cilium-pool-operator | 1 | 1 | abc |\n") {
		t.Errorf("the table is\n%s", table)
	}
	if len(k.by["storm"]) != 3 {
		t.Errorf("%d sizes have a table of their own, want 3", len(k.by["storm"]))
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

// at is a point measured at a commit, in that many rounds.
func at(nodes int, value float64, commit string, rounds int) point {
	return point{nodes, value, measured{run: &results{Commit: commit}, samples: make([]sample, rounds)}}
}

// worked is at, once, where the fixed work took that long.
func worked(nodes int, value, work float64) point {
	p := at(nodes, value, "a", 1)
	p.of.samples[0].Values = map[string]float64{fixedWork: work}
	return p
}

// Growth is judged relative to 1,250 nodes if that size was measured, and only above it. A
// verdict says what the sizes lack: rounds, or a commit in common.
func TestGrowthBase(t *testing.T) {
	tests := map[string]struct {
		points []point
		want   verdict
		base   int
	}{
		"from 1,250 nodes":        {[]point{at(625, 20, "a", 1), at(1250, 10, "a", 2), at(5000, 60, "a", 3)}, verdict{"1.50", "2", "**missed**", "-", "a"}, 1250},
		"from the smallest size":  {[]point{at(625, 20, "a", 2), at(5000, 160, "a", 2)}, verdict{"1", "2", "met", "-", "a"}, 625},
		"once":                    {[]point{at(1250, 10, "a", 3), at(5000, 40, "a", 1)}, verdict{"1", "1", "met, once", "-", "a"}, 1250},
		"other commit":            {[]point{at(1250, 10, "a", 1), at(5000, 60, "b", 3)}, verdict{"1.50", "1", "**missed**, once, other commit", "-", "1250: a; 5000: b"}, 1250},
		"other commit between":    {[]point{at(1250, 10, "a", 2), at(2500, 20, "b", 2), at(5000, 60, "a", 2)}, verdict{"1.50", "2", "**missed**", "-", "a"}, 1250},
		"just above the limit":    {[]point{at(1250, 10, "a", 2), at(5000, 44.16, "a", 2)}, verdict{"1.104", "2", "**missed**", "-", "a"}, 1250},
		"on a slower machine":     {[]point{worked(1250, 10, 1000), worked(5000, 48, 1250)}, verdict{"1.20", "1", "**missed**, once", "1.25", "a"}, 1250},
		"up to 1,250 nodes":       {[]point{at(625, 20, "a", 2), at(1250, 10, "a", 2)}, unmeasured(), 1250},
		"from too little to tell": {[]point{at(1250, 0, "a", 2), at(5000, 1, "a", 2)}, unmeasured(), 1250},
		"one size":                {[]point{at(5000, 1, "a", 2)}, unmeasured(), 1250},
		"nothing":                 {nil, unmeasured(), 1250},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, base := (curve{points: test.points}).goal(); got != test.want || base != test.base {
				t.Errorf("%v, at %d nodes, not %v, at %d", got, base, test.want, test.base)
			}
		})
	}
	k := keep([]results{{Commit: "abc", Nodes: fullSize, Samples: []sample{
		{Measure: "rest", Contender: ours, Nodes: 625, Values: map[string]float64{"cpu s": 1}},
		{Measure: "rest", Contender: ours, Nodes: 1250, Values: map[string]float64{"cpu s": 3}},
		{Measure: "rest", Contender: ours, Nodes: 2500, Values: map[string]float64{"cpu s": 9}},
	}}})
	if table := growthTable(k); !strings.Contains(table, "| own CPU at rest | cilium-pool-operator | 1 | 3 | 9, **1.50×** | abc |\n") {
		t.Errorf("the table is\n%s", table)
	}
}

// A goal of growth also says how the floor grows, where that was measured at the same size.
func TestGrowthGoalsNameTheFloors(t *testing.T) {
	of := func(contender string, nodes int, seconds float64) sample {
		return sample{Measure: "storm", Contender: contender, Nodes: nodes, Values: map[string]float64{"seconds": seconds}}
	}
	floor := bare("claim").name
	samples := []sample{of(ours, growthBase, 10), of(floor, growthBase, 10), of(ours, fullSize, 48), of(floor, fullSize, 60)}
	const both, alone = "its own at 1250 nodes; the floor's growth: 1.50 | 1.10 | 1.20 |", "its own at 1250 nodes | 1.10 | 1.20 |"
	for name, test := range map[string]struct {
		samples []sample
		want    string
	}{
		"both":                  {samples, both},
		"no floor at that size": {samples[:3], alone},
	} {
		if table := goalsTable(keep([]results{{Commit: "abc", Nodes: fullSize, Samples: test.samples}})); !strings.Contains(table, "| growth per node, scale-up storm | "+test.want) {
			t.Errorf("%s: the table lacks %q:\n%s", name, test.want, table)
		}
	}
}

// A row names the commits of all sizes, and which size was measured at which.
func TestGrowthCommits(t *testing.T) {
	tests := map[string]struct {
		points []point
		want   string
	}{
		"nothing":         {nil, "-"},
		"one":             {[]point{at(1250, 1, "a", 1), at(5000, 1, "a", 1)}, "a"},
		"another":         {[]point{at(1250, 1, "a", 1), at(5000, 1, "a", 1), at(20000, 1, "b", 1)}, "a; 20000: b"},
		"another at each": {[]point{at(1250, 1, "a", 1), at(5000, 1, "b", 1), at(20000, 1, "c", 1)}, "a; 5000: b; 20000: c"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (curve{points: test.points}).commits(); got != test.want {
				t.Errorf("%q, not %q", got, test.want)
			}
		})
	}
}
