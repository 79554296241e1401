package main

import (
	"slices"
	"strings"
	"testing"
)

// A size below the full one has tables of its own only where growth does not show it.
func TestTablesOfSmallSizes(t *testing.T) {
	of := func(measure string, nodes int) sample {
		return sample{Measure: measure, Contender: ours, Nodes: nodes, Values: map[string]float64{"seconds": 1, "p99 ms": 1}}
	}
	small := results{Nodes: growthBase, Samples: []sample{of("storm", growthBase), of(reactName(30), growthBase), of("storm"+inThatMode, growthBase)}}
	full := results{Nodes: fullSize, Samples: []sample{of("storm", fullSize), of(reactName(30), fullSize)}}
	titles := []string{"Scale-up storm, multi-pool mode, 1250 nodes", "Scale-up storm, 1250 nodes", "Reaction at 30 pods/s, 1250 nodes"}
	for name, test := range map[string]struct {
		kept []results
		want []string
	}{
		"the small alone": {[]results{small}, titles},
		"both":            {[]results{small, full}, titles[:1]},
	} {
		page := keep(test.kept).markdown(nil)
		for _, title := range titles {
			if has := strings.Contains(page, "### "+title+"\n"); has != slices.Contains(test.want, title) {
				t.Errorf("%s: there is %q: %t", name, title, has)
			}
		}
	}
}
