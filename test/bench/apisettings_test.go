package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// effectsOfDefaults returns the effects of an administrator's restart on an API server with
// its defaults.
func effectsOfDefaults() bed.Effects {
	return bed.Effects{
		WatchCaches: []string{"nodes", "pods", "leases", "ciliumnodes", "podipblocks"},
		Streamed:    map[string]float64{"nodes": 1, "ciliumnodes": 1}, Dispatched: map[string]float64{"exempt": 30},
	}
}

// Where nothing is set, no setting seems to have had an effect.
func TestEffectsOfDefaults(t *testing.T) {
	r := &run{values: map[string]float64{}}
	r.noteEffects(effectsOfDefaults())
	for _, s := range apiSettings() {
		if s.took != nil && s.took(r.values) {
			t.Errorf("%s seems to be set: %v", s.name, r.values)
		}
	}
}

func TestEffects(t *testing.T) {
	tests := map[string]struct {
		change func(e *bed.Effects)
		want   []string // settings that may have been set
	}{
		"no caches": {func(e *bed.Effects) { e.WatchCaches = []string{"leases"} }, []string{
			"--watch-cache=false", "--watch-cache-sizes=nodes#0,pods#0", "--watch-cache-sizes=ciliumnodes.cilium.io#0,podipblocks.cilium-pool.io#0"}},
		"no caches of built-in kinds": {func(e *bed.Effects) { e.WatchCaches = []string{"ciliumnodes", "podipblocks"} }, []string{"--watch-cache-sizes=nodes#0,pods#0"}},
		"no streamed lists":           {func(e *bed.Effects) { e.Streamed = nil }, []string{"--feature-gates=WatchList=false", "KUBE_FEATURE_WatchListClient=false"}},
		"CBOR":                        {func(e *bed.Effects) { e.CBOR = true }, []string{serveCBOR, serveCBOR + " " + allowCBOR + " " + preferCBOR}},
		"no fairness":                 {func(e *bed.Effects) { e.Dispatched = nil }, []string{noFairness, asAccount + " " + noFairness}},
		"limited": {func(e *bed.Effects) { e.Dispatched = map[string]float64{"exempt": 3, "workload-low": 9} },
			[]string{asAccount}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := effectsOfDefaults()
			test.change(&e)
			r := &run{values: map[string]float64{}}
			r.noteEffects(e)
			var got []string
			for _, s := range apiSettings() {
				if s.took != nil && s.took(r.values) {
					got = append(got, s.name)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("settings that took (-want +got):\n%s", diff)
			}
		})
	}
}

// Each setting is a contender with its own name, the defaults come first and are unchanged,
// and none has a row in the table of contenders' settings.
func TestSettingMeasures(t *testing.T) {
	for _, m := range settingMeasures(apiSettings()) {
		var names []string
		for _, c := range m.contenders {
			if slices.Contains(names, c.name) || c.settings != "" {
				t.Errorf("%s: contender %q, settings %q", m.name, c.name, c.settings)
			}
			names = append(names, c.name)
		}
		first := m.contenders[0]
		if first.name != defaultSetting || len(first.controlPlane.Args)+len(first.controlPlane.Env)+len(first.env) > 0 {
			t.Errorf("%s begins with %q", m.name, first.name)
		}
	}
	var r results
	if r.set("cold", ours, ""); r.Settings != nil {
		t.Errorf("no settings are kept as %v", r.Settings)
	}
}

func TestNote(t *testing.T) {
	setting := apiSetting{took: func(values map[string]float64) bool { return values["caches"] == 0 }}
	of := func(caches float64) map[string]float64 { return map[string]float64{"caches": caches} }
	tests := map[string]struct {
		setting          apiSetting
		values, defaults map[string]float64
		want             string
	}{
		"an effect":            {setting, of(0), of(4), ""},
		"none":                 {setting, of(4), of(4), "ignored"},
		"the defaults alike":   {setting, of(0), of(0), "whether it has an effect is not known"},
		"without the defaults": {setting, of(0), nil, ""},
		"nothing to see":       {apiSetting{}, of(4), of(4), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.setting.note(test.values, test.defaults); !strings.HasPrefix(got, test.want) || got != "" && test.want == "" {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestReason(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"no log": {"12 of 100: out of patience", "12 of 100: out of patience"},
		"a flag that is refused": {"kube-apiserver ended by itself; its log ends:\nError: unknown flag: --foo\n",
			"unknown flag: --foo"},
		"a value that is refused": {"kube-apiserver ended by itself; its log ends:\n" +
			`E1123 16:18:29.764552    2677 run.go:72] "command failed" err="cannot set \"A\" to false" attempt=1`, `cannot set "A" to false`},
		"the operator's last error": {"0 of 100: out of patience; the contender's log ends:\n" +
			`{"level":"error","msg":"Failed to watch","error":"first"}` + "\n" + `{"level":"error","msg":"Failed to list","error":"second"}` + "\n" +
			`{"level":"info","msg":"waiting"}`, "Failed to list: second"},
		"a log without errors": {"out of patience; the contender's log ends:\n" + `{"level":"info","msg":"waiting"}`,
			"out of patience; the contender's log ends:"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := reason(errors.New(test.text)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestEnough(t *testing.T) {
	if got := enough(2.5); got != 72500*time.Millisecond {
		t.Errorf("got %v", got)
	}
}

// The tables have a row for each setting, and show which settings failed and which had no
// effect.
func TestAPISettingsTable(t *testing.T) {
	if got := apiSettingsTable(keep(nil)); got != "" {
		t.Errorf("without results: %s", got)
	}
	of := func(measure, setting string, seconds float64) sample {
		return sample{Measure: settingsOf + measure, Contender: setting, Nodes: 300, Values: map[string]float64{"seconds": seconds, "watched MiB": 5}}
	}
	failed, ignored := sample{Measure: settingsOf + "cold", Contender: "--a=b " + asAccount, Nodes: 300, Note: "failed: a|b"}, of("cold", "--c=d", 3)
	ignored.Note = "ignored"
	got := apiSettingsTable(keep([]results{{Commit: "abc", Samples: []sample{of("cold", defaultSetting, 2), failed, ignored, of("restart", defaultSetting, 7)}}}))
	for _, want := range []string{
		"### Settings in a cold start, 300 nodes\n", "### Settings in a restart, 300 nodes\n", "Commit abc.",
		"| defaults | 2 | - | - | - | - | - | 5 | - | - | - |  |\n",
		"| `--a=b` a ServiceAccount | - | - | - | - | - | - | - | - | - | - | failed: a\\|b |\n",
		"| `--c=d` | 3, **1.50×** | - | - | - | - | - | 5 | - | - | - | ignored |\n",
		"| defaults | 7 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the tables lack %q:\n%s", want, got)
		}
	}
}
