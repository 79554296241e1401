package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

func TestWithPods(t *testing.T) {
	restarted := bed.World{Blocks: 2, Used: 20, Pods: 20, Settled: true}
	tests := map[string]struct {
		world bed.World
		pods  int
		name  string
		want  bed.World
	}{
		"not given":         {restarted, 0, "restart", restarted},
		"as it was":         {restarted, 20, "restart", restarted},
		"fewer":             {restarted, 5, "restart, 5 pods per node", bed.World{Blocks: 2, Used: 5, Pods: 5, Settled: true}},
		"all of two blocks": {restarted, 40, "restart, 40 pods per node", bed.World{Blocks: 2, Used: 40, Pods: 40, Settled: true}},
		"more blocks":       {restarted, 110, "restart, 110 pods per node", bed.World{Blocks: 6, Used: 110, Pods: 110, Settled: true}},
		"a world without":   {bed.World{Blocks: 1, Used: 15}, 110, "restart", bed.World{Blocks: 1, Used: 15}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := withPods(measure{name: "restart", world: test.world}, test.pods)
			if diff := cmp.Diff(test.want, got.world); diff != "" || got.name != test.name {
				t.Errorf("measure %q, not %q: %s", got.name, test.name, diff)
			}
			if again := withPods(got, test.pods); again.name != got.name || again.world != got.world {
				t.Errorf("the same again is %q, %v", again.name, again.world)
			}
		})
	}
}

func TestCheckPods(t *testing.T) {
	for pods, ok := range map[int]bool{-1: false, 0: true, 1: true, mostPods: true, mostPods + 1: false} {
		if err := checkPods(pods); (err == nil) != ok {
			t.Errorf("-pods=%d: %v", pods, err)
		}
	}
}

// Another number of pods has its own table, and leaves the table of the usual number
// unchanged.
func TestTablesByPods(t *testing.T) {
	of := func(measure string, seconds float64) sample {
		return sample{Measure: measure, Contender: ours, Nodes: fullSize, Values: map[string]float64{"seconds": seconds}}
	}
	page := keep([]results{
		{Nodes: fullSize, Samples: []sample{of("restart", 111)}},
		{Nodes: fullSize, Samples: []sample{of("restart, 110 pods per node", 333), of("restart, 40 pods per node", 222)}},
	}).markdown(nil)
	_, rest, found := strings.Cut(page, "### Restart\n")
	for _, want := range []string{"| 111 |", "### Restart, 40 pods per node\n", "| 222 |", "### Restart, 110 pods per node\n", "| 333 |"} {
		var ok bool
		if _, rest, ok = strings.Cut(rest, want); !found || !ok {
			t.Fatalf("the page lacks %q in its place:\n%s", want, page)
		}
	}
}
