package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNotes(t *testing.T) {
	day := time.Date(2026, time.November, 25, 12, 0, 0, 0, time.UTC)
	busy, silent := &results{Commit: "abc", Began: day, Note: "Its times are too long."}, &results{Commit: "xyz", Began: day}
	tests := map[string]struct {
		of   []measured
		want string
	}{
		"nothing":       {[]measured{{}}, ""},
		"no note":       {[]measured{{run: silent}}, ""},
		"one run":       {[]measured{{run: busy}, {}, {run: busy}}, "Note on this run: Its times are too long.\n\n"},
		"one of two":    {[]measured{{run: silent}, {run: busy}, {run: busy}}, "Note on the run of commit abc, begun 2026-11-25 12:00 UTC: Its times are too long.\n\n"},
		"none of those": {nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := notes(test.of...); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Each table that is written from a run with a note repeats the note; the others do not.
func TestNotesUnderTables(t *testing.T) {
	of := func(measure, contender string, nodes int, values map[string]float64) sample {
		return sample{Measure: measure, Contender: contender, Nodes: nodes, Values: values}
	}
	seconds := func(v float64) map[string]float64 { return map[string]float64{"seconds": v} }
	p99 := map[string]float64{"p99 ms": 1}
	page := keep([]results{
		{Nodes: fullSize, Samples: []sample{of("cold", ours, fullSize, seconds(1))}},
		{Note: "Slow.", Nodes: fullSize, Sizes: map[string]float64{"Node": 1}, Samples: []sample{
			of("storm", ours, fullSize, seconds(1)), of("storm", ours, growthBase, seconds(1)), restartSample(ours, fullSize, 20, 100, 100),
			of(reactName(30), ours, fullSize, p99), of(reactName(30), ours, growthBase, p99), of("failover", ours, fullSize, nil),
			of("pools", oursUnpaced, 10, map[string]float64{"blocks": 1}), of(settingsOf+"cold", defaultSetting, fullSize, seconds(1)),
		}},
	}).markdown(nil)
	for title, want := range map[string]bool{
		"Cold start": false, "Goals": true, "Scale-up storm": true, "Restart": true, "Memory": true, "Growth": true, "Growth of reactions": true,
		"Failover": true, "Many pools": true, "Settings in a cold start": true, "Bytes per object": true,
	} {
		_, section, found := strings.Cut(page, "### "+title+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		if !found || strings.Contains(section, "\n\nNote on ") != want || strings.Contains(section, ": Slow.\n") != want {
			t.Errorf("%s: want a note: %t, but there is\n%s", title, want, section)
		}
	}
}

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
