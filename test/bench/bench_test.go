package main

import (
	"slices"
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

// For each measure and size, all samples come from the latest run that has it.
func TestKeep(t *testing.T) {
	of := func(measure, contender string, nodes int, seconds float64) sample {
		return sample{Measure: measure, Contender: contender, Nodes: nodes, Values: map[string]float64{"seconds": seconds}}
	}
	early := results{Commit: "early", Nodes: 10, Samples: []sample{of("cold", ours, 10, 1), of("cold", clusterPool, 10, 2), of("storm", ours, 10, 3)}}
	late := results{Commit: "late", Nodes: 10, Samples: []sample{of("cold", ours, 10, 4), of("cold", ours, 20, 5)}}
	gone := results{Commit: "gone", Nodes: 10, Samples: []sample{of("cold", ours, 20, 6)}}
	k := keep([]results{gone, early, late})
	if got := k.by["cold"][10].values(ours, "seconds"); !slices.Equal(got, []float64{4}) {
		t.Errorf("cold start took %v", got)
	}
	if got := k.by["cold"][10].values(clusterPool, "seconds"); len(got) > 0 {
		t.Errorf("a contender of another run: %v", got)
	}
	if got := k.by["storm"][10].commits(); !slices.Equal(got, []string{"early"}) {
		t.Errorf("the storm was measured at %v", got)
	}
	var used []string
	for _, r := range k.used() {
		used = append(used, r.Commit)
	}
	if !slices.Equal(used, []string{"early", "late"}) {
		t.Errorf("used are %v", used)
	}
}

func TestGoals(t *testing.T) {
	of := func(contender string, round int, seconds float64) sample {
		return sample{Measure: "cold", Contender: contender, Nodes: fullSize, Round: round, Values: map[string]float64{"seconds": seconds, "versions": 5}}
	}
	peak := func(contender string, round int, mib float64) sample {
		return sample{Measure: "restart", Contender: contender, Nodes: fullSize, Round: round, Values: map[string]float64{"peak MiB": mib}}
	}
	busy := func(contender string, seconds, work float64) sample {
		return sample{Measure: "storm", Contender: contender, Nodes: fullSize, Values: map[string]float64{"apiserver cpu s": seconds, fixedWork: work}}
	}
	claim := bare("claim").name
	table := goalsTable(keep([]results{{Commit: "abc", Nodes: fullSize, Samples: []sample{
		of(claim, 0, 10), of(ours, 0, 12), of(claim, 1, 10), of(ours, 1, 14), of(claim, 2, 10), of(ours, 2, 11),
		of(clusterPool, 0, 8), of(multiPool, 0, 10), of(multiPool, 1, 10),
		peak(ours, 0, 8), peak(ours, 1, 18), peak(ours, 2, 20), peak(clusterPool, 0, 10), peak(clusterPool, 1, 20), peak(multiPool, 3, 9),
		busy(claim, 10, 1000), busy(ours, 11.04, 1200),
	}}}))
	for _, want := range []string{
		"| goal | compared with | at most | measured | rounds | result | machine | commit |\n",
		"| cold start | " + claim + " | 1.30 | 1.20 (1.10–1.40) | 3 | undecided | - | abc |\n",
		"| cold start | " + clusterPool + " | 1 | 1.50 | 1 | **missed**, once | - | abc |\n",
		"| cold start | " + multiPool + " | 1 | 1.30 (1.20–1.40) | 2 | **missed** | - | abc |\n",
		"| cold start | " + clusterPoolAsIs + " | 0.20 | not measured | - | - | - | - |\n",
		"| versions that every agent receives | " + claim + " | 1 | 1 | 3 | met | - | abc |\n",
		// Of all rounds, the ratio of the medians would be 1.20, outside the range.
		"| peak memory, restart | " + clusterPool + " | 1 | 0.87 (0.80–0.90) | 2 | met | - | abc |\n",
		// Without a common round there is nothing better than all of them.
		"| peak memory, restart | " + multiPool + " | 1 | 2 | 0 | **missed**, once | - | abc |\n",
		// 1.10 would look like met. The machine was slower by more.
		"| the API server's CPU, scale-up storm | " + claim + " | 1.10 | 1.104 | 1 | **missed**, once | 1.20 | abc |\n",
		"| reaction at 1000 bound pods/s, 99th percentile | " + bare("react").name + " | 1.30 | not measured | - | - | - | - |\n",
		"| growth per node, cold start, from the first node on | its own at 1250 nodes | 1.10 | not measured | - | - | - | - |\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

// A goal's value has as many decimals as show on which side of the limit it is.
func TestTelling(t *testing.T) {
	tests := map[string]struct {
		v, limit float64
		want     string
	}{
		"met":                       {1.05, 1.1, "1.05"},
		"just met":                  {1.096, 1.1, "1.10"},
		"exactly":                   {1.1, 1.1, "1.10"},
		"missed":                    {1.2, 1.1, "1.20"},
		"just missed":               {1.104, 1.1, "1.104"},
		"missed by next to nothing": {1.1004, 1.1, "1.1004"},
		"a limit of thirds":         {0.666, 2.0 / 3, "0.666"},
		"one decimal":               {12.04, 12, "12.04"},
		"no decimal":                {100.4, 100, "100.4"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := telling(test.v, test.limit); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Each goal compares contenders that its measure has.
func TestGoalsNameContenders(t *testing.T) {
	of := map[string][]contender{}
	for _, m := range append([]measure{cold(true), join(), restart(true), storm(), stormInMultiPool(true), reclaim(), rest(true, 1, 1), modes(true, 1, 1)}, reactions(1)...) {
		of[m.name] = m.contenders
	}
	for _, g := range goals() {
		for _, name := range []string{g.contender, g.of} {
			if name != "" && !slices.ContainsFunc(of[g.measure], func(c contender) bool { return c.name == name }) {
				t.Errorf("%s: measure %q has no %q", g.about, g.measure, name)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	values := map[string]float64{"writes": 7, "measured s": 2}
	tests := map[string]struct {
		check check
		want  string
	}{
		"equal":            {check{value: "writes", want: 7}, ""},
		"fewer":            {check{value: "writes", want: 8}, "writes is 7, not 8"},
		"of nothing":       {check{value: "events", want: 1}, "events is 0, not 1"},
		"within the limit": {check{value: "writes", want: 3, limit: true, perSecond: 2}, ""},
		"beyond it":        {check{value: "writes", want: 2, limit: true, perSecond: 2}, "writes is 7, more than 6"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.check.wrong(values); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Each step runs unless -measures leaves it out.
func TestQuickStepsRun(t *testing.T) {
	for _, s := range quickSteps(10) {
		if !slices.Contains(measureNames(), s.flag()) {
			t.Errorf("%q is the step of a measure %q, which there is not", s.m.name, s.flag())
		}
	}
}

func TestAllocations(t *testing.T) {
	if err := allocations(); err != nil {
		t.Error(err)
	}
}

// A column without any value is left out; a column for which some samples lack a value is
// not.
func TestTableMarkdown(t *testing.T) {
	shown := table{columns: []column{{"seconds", "time, s", true}, {"apiserver peak MiB", "API server, MiB", false}, {"writes", "writes", false}}}
	got := shown.markdown([]sample{
		{Contender: "floor", Values: map[string]float64{"seconds": 2}},
		{Contender: ours, Values: map[string]float64{"seconds": 3, "writes": 0}},
	})
	want := "| contender | rounds | time, s | writes |\n| --- | --- | --- | --- |\n| floor | 1 | 2 | - |\n| " + ours + " | 1 | 3, **1.50×** | 0 |\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
