package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func restartSample(contender string, nodes, pods int, peak, settled float64) sample {
	return sample{Measure: "restart", Contender: contender, Nodes: nodes,
		Values: map[string]float64{"peak MiB": peak, "settled MiB": settled, podsPerNode: float64(pods), "blocks per node": 2}}
}

// What the process takes alone is measured with the same contender as the memory per node
// and pod.
func TestAlone(t *testing.T) {
	if c := alone().contenders; len(c) != 1 || c[0].name != oursPodless || !c[0].podless {
		t.Errorf("contenders are %v", c)
	}
}

func TestFootprint(t *testing.T) {
	whole := footprint{nodes: 1025, pods: 10, with: memory{71, 70}, without: memory{61, 65}, alone: memory{41, 45}}
	wantNode, wantPod := memory{20, 20}, memory{10.0 * (1 << 20) / 10250, 5.0 * (1 << 20) / 10250}
	if got, ok := whole.perNode(); !ok || got != wantNode {
		t.Errorf("a node takes %v, %v, not %v", got, ok, wantNode)
	}
	if got, ok := whole.perPod(); !ok || got != wantPod {
		t.Errorf("a pod takes %v, %v, not %v", got, ok, wantPod)
	}
	for name, f := range map[string]footprint{
		"no cluster without pods": {nodes: 1025, pods: 10, with: memory{71, 70}, alone: memory{41, 45}},
		"never alone":             {nodes: 1025, with: memory{71, 70}, without: memory{61, 65}},
		"one node":                {nodes: 1, pods: 0, with: memory{71, 70}, without: memory{61, 65}, alone: memory{41, 45}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := f.perNode(); ok {
				t.Errorf("a node takes %v", got)
			}
			if got, ok := f.perPod(); ok {
				t.Errorf("a pod takes %v", got)
			}
		})
	}
}

func TestMemoryTable(t *testing.T) {
	k := keep([]results{
		{Commit: "abc", Nodes: 1025, Samples: []sample{
			restartSample(ours, 1025, 10, 71, 70), restartSample(oursPodless, 1025, 0, 61, 65), restartSample(ours, 513, 10, 60, 55), restartSample(clusterPool, 1025, 10, 400, 400),
			{Measure: "restart", Contender: ours, Nodes: 257, Values: map[string]float64{"seconds": 1}},
		}},
		{Commit: "xyz", Nodes: 1, Samples: []sample{restartSample(oursPodless, 1, 0, 41, 45)}},
	})
	_, got, _ := strings.Cut(memoryTable(k), strings.Repeat("| --- ", 9)+"|\n")
	want := "| 513 | 2 | 10 | 60, 55 | - | 41, 45 | - | - | abc, xyz |\n" +
		"| 1025 | 2 | 10 | 71, 70 | 61, 65 | 41, 45 | 20, 20 | 1023, 512 | abc, xyz |\n\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(k.markdown(nil), "### Restart, 1 nodes") {
		t.Error("the process alone has a table of a restart")
	}
	if got := memoryTable(keep(nil)); got != "" {
		t.Errorf("without results the table is %q", got)
	}
}

// Results with another etcd, or another number of pods, have rows that say so.
func TestMemoryTableOfVariants(t *testing.T) {
	samples := []sample{restartSample(ours, fullSize, 20, 200, 200), restartSample(ours, fullSize, 20, 300, 300), restartSample(ours, fullSize, 40, 400, 400)}
	samples[1].Measure, samples[2].Measure = "restart, with fsync", "restart, 40 pods per node"
	table := memoryTable(keep([]results{{Commit: "abc", Nodes: fullSize, Samples: samples}}))
	for _, want := range []string{"| 5000 | 2 | 20 | 200, 200 |", "| 5000, with fsync | 2 | 20 | 300, 300 |", "| 5000, 40 pods per node | 2 | 40 | 400, 400 |"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

// The rounds of a memory goal are those of the contender with the fewest, and its commits
// those of the sizes that it compares.
func TestMemoryGoalRounds(t *testing.T) {
	base := memoryBase()
	restarted := func(round int, s sample) sample { s.Round = round; return s }
	k := keep([]results{
		{Commit: "abc", Nodes: fullSize, Samples: []sample{
			restartSample(ours, fullSize, base.pods, 90, 90), restarted(1, restartSample(ours, fullSize, base.pods, 90, 90)), restarted(2, restartSample(ours, fullSize, base.pods, 90, 90)),
			restartSample(oursPodless, fullSize, 0, 80, 80), restarted(1, restartSample(oursPodless, fullSize, 0, 80, 80)),
		}},
		{Commit: "xyz", Nodes: 1, Samples: []sample{restartSample(oursPodless, 1, 0, 50, 50)}},
	})
	got := memoryGoals(k)
	if strings.Count(got, "| 1 | met, once | - | abc, xyz |\n") != 2 || strings.Count(got, "| 2 | met | - | abc |\n") != 2 {
		t.Errorf("a node should have one round, a pod two:\n%s", got)
	}
}

// Memory is compared with memoryBase only at its size and with its number of pods.
func TestMemoryGoals(t *testing.T) {
	base := memoryBase()
	missed := keep([]results{{Commit: "abc", Nodes: fullSize, Samples: []sample{
		restartSample(ours, fullSize, base.pods, base.with.peak, base.with.settled), restartSample(oursPodless, fullSize, 0, base.without.peak, base.without.settled),
		restartSample(oursPodless, 1, 0, base.alone.peak, base.alone.settled), restartSample(ours, 4*fullSize, base.pods, 71, 70),
	}}})
	if got := memoryGoals(missed); strings.Count(got, "| 2/3 | 1 | 1 | **missed**, once | - | abc |\n") != 4 {
		t.Errorf("what took as much as then:\n%s", got)
	}
	met := keep([]results{{Commit: "abc", Nodes: fullSize, Samples: []sample{
		restartSample(ours, fullSize, base.pods, 90, 90), restartSample(oursPodless, fullSize, 0, 80, 80), restartSample(oursPodless, 1, 0, base.alone.peak, base.alone.settled),
	}}})
	if got := memoryGoals(met); strings.Count(got, "| 1 | met, once | - | abc |\n") != 4 {
		t.Errorf("what took less than two thirds:\n%s", got)
	}
	other := keep([]results{{Commit: "abc", Nodes: fullSize, Samples: []sample{
		restartSample(ours, fullSize/2, base.pods, 90, 90), restartSample(oursPodless, fullSize/2, 0, 80, 80), restartSample(oursPodless, 1, 0, 50, 50),
	}}})
	if got := memoryGoals(other); strings.Count(got, "| "+notMeasured+" | - | - | - | - |\n") != 4 {
		t.Errorf("another size:\n%s", got)
	}
}
