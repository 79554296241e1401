package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/floor"
)

// Floors have as many requests in flight as the operator has by default.
func TestWorkers(t *testing.T) {
	if got := config.DefaultSettings().NodeWorkers; got != floor.Workers {
		t.Errorf("the operator has %d workers by default, floors %d", got, floor.Workers)
	}
}

// Each ratio compares contenders that its measure has.
func TestRatiosNameContenders(t *testing.T) {
	of := map[string][]string{}
	for _, m := range compared(true) {
		for _, c := range m.contenders {
			of[m.name] = append(of[m.name], c.name)
		}
	}
	for _, r := range ratios() {
		for _, name := range append(r.against[:], r.own) {
			if name != "" && !slices.Contains(of[r.measure], name) {
				t.Errorf("%s: measure %q has no %q", r.about, r.measure, name)
			}
		}
	}
}

func TestReport(t *testing.T) {
	newSample := func(contender string, round int, seconds float64) sample {
		return sample{Measure: "cold", Contender: contender, Round: round, Values: map[string]float64{"seconds": seconds}}
	}
	claim := bare("claim").name
	b := &bench{command: "bench run", measures: []measure{{name: "cold", contenders: []contender{{name: claim}, {name: ours}, {name: multiPool}}}}, samples: []sample{
		newSample(claim, 0, 10), newSample(ours, 0, 12), newSample(clusterPool, 0, 24), newSample(ours, 1, 14), newSample(claim, 1, 10), newSample(clusterPool, 1, 28),
	}}
	got := b.report()
	for _, want := range []string{
		"| this operator ÷ | floor | cluster-pool | multi-pool |\n",
		"| cold start: a block for every node | 1.30 (1.20–1.40) | 0.50 | - |\n",
		"| restart | - | - | - |\n",
		"## cold\n", "| " + ours + " | 13 (12–14) | - |", "| " + multiPool + " | - | - |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, got)
		}
	}
}

func TestCheck(t *testing.T) {
	values := map[string]float64{"writes": 7, "measured s": 2}
	tests := map[string]struct {
		check check
		want  string
	}{
		"equal":            {equal("writes", 7), ""},
		"fewer":            {equal("writes", 8), "writes is 7, not 8"},
		"of nothing":       {equal("events", 1), "events is 0, not 1"},
		"within the limit": {check{value: "writes", want: 3, limit: true, perSecond: 2}, ""},
		"beyond it":        {check{value: "writes", want: 2, limit: true, perSecond: 2}, "writes is 7, more than 6"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.check.wrong(values)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAllocations(t *testing.T) {
	if err := allocations(); err != nil {
		t.Error(err)
	}
}

func TestPublished(t *testing.T) {
	inCRD, inMultiPool := []byte(`{"podCIDRs":["10.0.0.0/27","10.0.0.32/27"]}`), []byte(`{"cidrs":["x"],"allocated":[{"cidrs":["10.0.0.0/27"]}]}`)
	for _, c := range []contender{{mode: bed.CRD}, {mode: bed.ClusterPool}} {
		if !c.published(inCRD, 2) || c.published(inCRD, 3) || c.published(inMultiPool, 1) {
			t.Errorf("mode %s", c.mode)
		}
	}
	for _, c := range []contender{{mode: bed.OwnMultiPool}, {mode: bed.MultiPool}} {
		if !c.published(inMultiPool, 1) || c.published(inMultiPool, 2) || c.published(inCRD, 1) {
			t.Errorf("mode %s", c.mode)
		}
	}
}

// bench run measures beside peers; bench quick counts more, without them.
func TestMeasures(t *testing.T) {
	for args, want := range map[string]string{
		"run":                        "cold restart storm steady failover-stopped failover-killed failover-hung",
		"run -measures=storm,cold":   "cold storm",
		"quick":                      "cold restart storm steady join reclaim react routes",
		"run -measures=join":         "-measures=join: choose from cold,restart,storm,steady,failover-stopped,failover-killed,failover-hung",
		"run -nodes=1":               "-nodes=1 -rounds=3: choose 2 to 40000 nodes, and a round or more",
		"quick -measures=join,react": "join react",
	} {
		b, err := newBench(strings.Fields(args))
		var got []string
		if err != nil {
			got = []string{err.Error()}
		} else {
			for _, m := range b.measures {
				got = append(got, m.name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, not %q", args, got, want)
		}
	}
}
