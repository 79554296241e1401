package script

import (
	"io"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	every := []Scenario{{Name: "join", CI: true}, {Name: "restart", CI: true}, {Name: "restart-surge"}, {Name: "modes-a", Apart: true}, {Name: "modes-b", Apart: true}}
	for list, want := range map[string]string{
		"ci": "join restart", "all": "join restart restart-surge", "restart": "restart", "modes": "modes-a modes-b",
		"restart-surge,join": "join restart-surge", "modes-b,ci": "join restart modes-b",
		"join,nothing": `no scenario "nothing"`, "mode": `no scenario "mode"`, "": `no scenario ""`,
	} {
		chosen, err := Choose(every, list)
		var got []string
		for _, s := range chosen {
			got = append(got, s.Name)
		}
		if err == nil && strings.Join(got, " ") != want || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q chooses %q, %v; want %s", list, got, err, want)
		}
	}
}

func TestFinishNeverTakesSkippedForPassed(t *testing.T) {
	for name, test := range map[string]struct {
		results []Result
		want    int
	}{
		"all passed":         {[]Result{Passed, Noted}, 0},
		"one failed":         {[]Result{Skipped, Failed, Passed}, ExitFailed},
		"one skipped":        {[]Result{Passed, Skipped}, ExitCannot},
		"nothing was judged": {nil, ExitFailed},
	} {
		var rows []Row
		for _, r := range test.results {
			rows = append(rows, Row{Result: r})
		}
		if got := Finish(io.Discard, rows); got != test.want {
			t.Errorf("%s: exit code %d, want %d", name, got, test.want)
		}
	}
}
