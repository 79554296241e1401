//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChoose(t *testing.T) {
	for name, test := range map[string]struct {
		run, want, err string
	}{
		"those of every change": {run: "ci", want: "join surge reclaim restart"},
		"one":                   {run: "kill", want: "kill"},
		"in the order given":    {run: "restart,join", want: "restart join"},
		"moves":                 {run: "migrate", want: "migrate-cluster-pool migrate-kubernetes migrate-multi-pool"},
		"one of the moves":      {run: "migrate-kubernetes", want: "migrate-kubernetes"},
		"other modes":           {run: "modes", want: "modes-multi-pool modes-multi-pool-dual modes-pools modes-kubernetes modes-kubernetes-dual modes-move modes-bgp modes-bgp-kubernetes modes-drain"},
		"of several groups":     {run: "modes-kubernetes,join", want: "modes-kubernetes join"},
		"unknown":               {run: "join,nothing", err: `no scenario "nothing"`},
		"none":                  {run: "", err: `no scenario ""`},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, err := choose(test.run)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			var names []string
			for _, s := range chosen {
				names = append(names, s.name)
			}
			if diff := cmp.Diff(test.want, strings.Join(names, " ")); err == nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFinishNeverTakesSkippedForPassed(t *testing.T) {
	for name, test := range map[string]struct {
		results []result
		want    int
	}{
		"all passed":         {[]result{passed, noted}, 0},
		"one failed":         {[]result{skipped, failed, passed}, exitFailed},
		"one skipped":        {[]result{passed, skipped}, exitSkipped},
		"nothing was judged": {nil, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			var rows []row
			for _, r := range test.results {
				rows = append(rows, row{Scenario: "s", What: "w", Figure: "f", Result: r})
			}
			if got := finish(rows); got != test.want {
				t.Errorf("exit code %d, want %d", got, test.want)
			}
		})
	}
}

func TestScenariosAreInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/contributing/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	for before, listed := range map[string][]scenario{"Scenarios: ": scenarios(), "Moves: ": migrations(), "Modes: ": modes()} {
		_, after, _ := strings.Cut(string(page), before)
		list, _, _ := strings.Cut(after, ".\n")
		var names []string
		for _, s := range listed {
			names = append(names, s.name)
		}
		if diff := cmp.Diff(names, strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })); diff != "" {
			t.Errorf("docs/contributing/testing.md lists other scenarios (-code +docs):\n%s", diff)
		}
	}
}
