package controller

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/forecast"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// exported are the series of metrics, by name and values of their labels.
func exported(t *testing.T, collectors ...prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(collectors...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return got
}

// What drains wait for is added up over nodes by pool; a node takes its part
// with it.
func TestDrainWaits(t *testing.T) {
	w := newWaiting()
	poolOf := func(wait expand.Wait) string {
		return map[string]string{"10.0.0.0/30": "p", "10.9.0.0/30": "q"}[wait.CIDR.String()]
	}
	waits := func(list ...expand.Wait) *familyPlan {
		return &familyPlan{Share: &state.Share{}, plan: expand.Plan{Waits: list}}
	}
	pods, agent := expand.Wait{CIDR: fixtures.Prefix("10.0.0.0/30"), For: expand.WaitPods}, expand.Wait{CIDR: fixtures.Prefix("10.9.0.0/30"), For: expand.WaitAgent}
	steps := []struct {
		do   func()
		want map[string]float64
	}{
		{func() { w.set(waits(pods, pods, agent), "a", poolOf, fixtures.Noon()) }, map[string]float64{"p Pods": 2, "q AgentAddress": 1}},
		{func() { w.set(waits(pods), "b", poolOf, fixtures.Noon()) }, map[string]float64{"p Pods": 3, "q AgentAddress": 1}},
		{func() { w.set(waits(pods), "a", poolOf, fixtures.Noon()) }, map[string]float64{"p Pods": 2}},
		{func() { w.set(waits(), "a", poolOf, fixtures.Noon()) }, map[string]float64{"p Pods": 1}},
		{func() { w.forgetNode("b") }, map[string]float64{}},
	}
	for i, step := range steps {
		step.do()
		want := map[string]float64{}
		for name, n := range step.want {
			want["cilium_pool_drain_wait_blocks ipv4 "+name] = n
		}
		if diff := cmp.Diff(want, exported(t, w)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	if len(w.nodes) > 0 {
		t.Errorf("at rest it remembers %v", w.nodes)
	}
}

// Marks that are withdrawn and set again are unanswered since the first; an
// answer ends that.
func TestUnansweredMarks(t *testing.T) {
	a, b := fixtures.Addrs("10.0.0.1")[0], fixtures.Addrs("10.0.0.2")[0]
	type entries = map[string]expand.ReleaseStatus
	steps := []struct {
		name    string
		entries entries
		mark    bool
		want    time.Duration // since noon; below 0: nothing is owed
	}{
		{"nothing is marked", nil, false, -1},
		{"a mark is to be set", nil, true, 1},
		{"it stands", entries{a.String(): expand.Marked}, false, 1},
		{"it was withdrawn, and is set again", nil, true, 1},
		{"it stands beside another", entries{a.String(): expand.Marked, b.String(): expand.Marked}, false, 1},
		{"the other is answered", entries{a.String(): expand.Marked, b.String(): expand.Ready}, false, 5},
		{"one is left", entries{a.String(): expand.Marked}, false, 5},
		{"of the other family alone", entries{"fd00::1": expand.Marked}, false, -1},
		{"all is answered", entries{a.String(): expand.Ready}, false, -1},
	}
	w := newWaiting()
	for i, step := range steps {
		p := &familyPlan{Share: &state.Share{
			Pools: []*crd.Pool{{Name: "p"}},
			State: expand.State{Release: map[netip.Addr]expand.ReleaseStatus{}},
		}}
		for key, status := range step.entries {
			p.State.Release[fixtures.Addrs(key)[0]] = status
		}
		if step.mark {
			p.plan.Mark = fixtures.Addrs("10.0.0.1")
		}
		w.set(p, "n", func(expand.Wait) string { return "" }, fixtures.Noon().Add(time.Duration(i)*time.Second))
		want := map[string]float64{}
		if step.want >= 0 {
			want["cilium_pool_mark_unanswered_timestamp_seconds ipv4 p"] = float64(fixtures.Noon().Unix()) + float64(step.want)
		}
		if diff := cmp.Diff(want, exported(t, w)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// Claims and releases are counted by pool and by what became of them.
func TestClaimsAndReleases(t *testing.T) {
	tests := map[string]struct {
		prepare func(b *bed)
		want    map[string]float64
	}{
		"claimed": {want: map[string]float64{"claims_total ipv4 p ok": 2}},
		"refused": {
			prepare: func(b *bed) {
				b.fate = func(write string) fate {
					if write == "create PodIPBlock" {
						return refused
					}
					return done
				}
			},
			want: map[string]float64{"claims_total ipv4 p error": 1},
		},
		"somebody else was first": {
			prepare: func(b *bed) {
				other := crd.NewBlock(fixtures.Prefix("10.0.0.0/30"), "p", "other", "other-uid")
				b.blind = true
				if err := b.api.Create(b.t.Context(), other); err != nil {
					b.t.Fatal(err)
				}
				b.blind = false
			},
			want: map[string]float64{"claims_total ipv4 p taken": 1, "claims_total ipv4 p ok": 1, "claims_total ipv4 p exhausted": 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node(), publishing(fixtures.CiliumNode("n", "1")), fixtures.PodIPPool("p", 1, "10.0.0.0/29"))
			if test.prepare != nil {
				test.prepare(b)
			}
			_, _ = b.reconcile()
			want := map[string]float64{}
			for name, n := range test.want {
				want["cilium_pool_"+name] = n
			}
			if diff := cmp.Diff(want, exported(t, b.r.Metrics.claims, b.r.Metrics.releases)); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
	b := resting(t)
	b.settle()
	got := exported(t, b.r.Metrics.releases)
	if want := map[string]float64{"cilium_pool_releases_total ipv4 p Returned": 1}; !cmp.Equal(want, got) {
		t.Errorf("releases: %v, want %v", got, want)
	}
}

// What is said of a pool goes with it, and with what was expected.
func TestForecastSeries(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	m.built("v1", "abc")
	m.build.Reset()
	// What is there whatever pools there are does not count.
	ofPools := slices.DeleteFunc(m.collectors(), func(c prometheus.Collector) bool { return c == m.awaited })
	soon := Foresight{Family: ipalloc.IPv4, Room: 7, Estimate: forecast.Estimate{Over: time.Hour, PerHour: 9, Expected: true, Left: time.Minute}}
	m.foresee("p", []Foresight{soon}, fixtures.Noon())
	want := map[string]float64{
		"cilium_pool_pool_room_nodes ipv4 p":                   7,
		"cilium_pool_pool_growth_blocks_per_hour ipv4 p":       9,
		"cilium_pool_pool_exhaustion_timestamp_seconds ipv4 p": float64(fixtures.Noon().Unix()) + 60,
	}
	if diff := cmp.Diff(want, exported(t, ofPools...)); diff != "" {
		t.Errorf("growing (-want +got):\n%s", diff)
	}
	soon.Expected, soon.PerHour = false, 0
	m.foresee("p", []Foresight{soon}, fixtures.Noon())
	delete(want, "cilium_pool_pool_exhaustion_timestamp_seconds ipv4 p")
	want["cilium_pool_pool_growth_blocks_per_hour ipv4 p"] = 0
	if diff := cmp.Diff(want, exported(t, ofPools...)); diff != "" {
		t.Errorf("resting (-want +got):\n%s", diff)
	}
	m.claimed("p", ipalloc.IPv4, claimTaken)
	m.released(crd.Block{Pool: "p", CIDR: fixtures.Prefix("10.0.0.0/30"), Reason: v1alpha1.ReasonReturned})
	m.forgetPool("p")
	if got := exported(t, ofPools...); len(got) > 0 {
		t.Errorf("the pool is gone, and there is %v", got)
	}
}
