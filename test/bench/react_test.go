package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A node has at most one pod, and the first half of the nodes has none.
func TestReactPods(t *testing.T) {
	tests := map[string]struct{ rate, seconds, nodes, want int }{
		"as long as asked":    {30, 20, 5000, 600},
		"one on each of half": {1000, 20, 5000, 2500},
		"odd":                 {1000, 20, 625, 312},
		"none":                {30, 20, 1, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := reactPods(test.rate, test.seconds, test.nodes); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// The growth of reactions is shown from 1,250 nodes on; a missing figure is a hyphen.
func TestReactionGrowth(t *testing.T) {
	of := func(contender string, nodes int, p99, reached float64) sample {
		return sample{Measure: reactName(30), Contender: contender, Nodes: nodes, Values: map[string]float64{"p99 ms": p99, "pods": 300, "pods/s reached": reached}}
	}
	floor := bare("react").name
	table := reactionGrowth(keep([]results{{Nodes: fullSize, Samples: []sample{
		of(floor, 625, 40, 30), of(ours, 625, 30, 30),
		of(floor, 1250, 10, 30), of(ours, 1250, 12, 29),
		of(floor, 5000, 20, 30), of(ours, 5000, 30, 28), of(ours, 5000, 30, 27),
	}}}))
	_, table, _ = strings.Cut(table, "\n\n")
	_, table, _ = strings.Cut(table, "\n\n")
	want := "| pods/s | | 625 | 1250 | 5000 |\n| --- | --- | --- | --- | --- |\n" +
		"| 30 | floor | 40 | 10 | 20, 2× |\n" +
		"| 30 | cilium-pool-operator | 30 | 12 | 30, 2.50× |\n" +
		"| 30 | times the floor's | 0.75× | 1.20× | **1.50×** |\n" +
		"| 30 | pods | 300 | 300 | 300 |\n" +
		"| 30 | pods/s reached: floor, cilium-pool-operator | 30, 30 | 30, 29 | 30, 27.5 (27–28) |\n"
	if diff := cmp.Diff(want, table[:min(len(want), len(table))]); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(table, "| 1000 | times the floor's | - | - | - |\n") {
		t.Errorf("the table is\n%s", table)
	}
	if text := reactionGrowth(keep([]results{{Samples: []sample{of(ours, 5000, 1, 1)}}})); text != "" {
		t.Errorf("growth of one size: %s", text)
	}
}
