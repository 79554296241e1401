package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSettingsTable(t *testing.T) {
	of := func(measure, contender string) sample {
		return sample{Measure: measure, Contender: contender, Nodes: fullSize}
	}
	early := results{Settings: map[string]map[string]string{
		"cold": {ours: "replaced"}, "storm": {ours: "defaults"}, "reclaim": {ours: "unpaced", clusterPool: "not shown"},
	}, Samples: []sample{of("cold", ours), of("storm", ours), of("reclaim", ours)}}
	late := results{Settings: map[string]map[string]string{"cold": {ours: "defaults", multiPool: "qps"}, "reclaim": {ours: "unpaced"}, "failover": {ours: "unpaced"}},
		Samples: []sample{of("cold", ours), of("cold", multiPool), of("reclaim", ours), of("failover", ours), of("rest", ours)}}
	late.Settings["rest"] = map[string]string{ours: "defaults"}
	_, got, _ := strings.Cut(settingsTable(keep([]results{early, late})), "| --- | --- |\n")
	want := "| " + multiPool + " | qps |\n| " + ours + " | defaults |\n| " + ours + ", in failover; reclaim | unpaced |\n\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := settingsTable(keep([]results{{Samples: []sample{of("cold", ours)}}})); got != "" {
		t.Errorf("without settings the table is %q", got)
	}
}

func TestDescribe(t *testing.T) {
	argv := []string{"/bin/operator", "--kubeconfig=/a", "--mode=multi-pool", "floor", "--secure-port=1", "--leader-elect"}
	if got, want := describe("else defaults", argv), "`--mode=multi-pool`, `--leader-elect`, else defaults"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := describe("", argv); got != "" {
		t.Errorf("without text: %s", got)
	}
}

// Saved results are read back unchanged.
func TestSavedResults(t *testing.T) {
	saved := results{Commit: "abc", Samples: []sample{{Measure: "cold", Contender: "a"}}}
	saved.set("cold", "a", "one")
	dir := t.TempDir()
	if err := saved.save(dir); err != nil {
		t.Fatal(err)
	}
	read, err := loadResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]results{saved}, read, cmp.AllowUnexported(results{})); diff != "" {
		t.Error(diff)
	}
}
