package bed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEffects(t *testing.T) {
	read := func(lines ...string) Effects {
		e := Effects{Streamed: map[string]float64{}, Dispatched: map[string]float64{}}
		for _, line := range lines {
			name, labels, value, ok := parseSeries(line)
			if !ok {
				t.Fatalf("no series: %s", line)
			}
			e.add(name, labels, value)
		}
		return e
	}
	before := read(
		`apiserver_flowcontrol_dispatched_requests_total{flow_schema="exempt",priority_level="exempt"} 4`,
		`apiserver_flowcontrol_request_wait_duration_seconds_sum{execute="true",flow_schema="service-accounts",priority_level="workload-low"} 1`)
	after := read(
		`apiserver_watch_cache_initializations_total{group="",resource="nodes"} 1`,
		`apiserver_watch_cache_initializations_total{group="events.k8s.io",resource="events"} 1`,
		`apiserver_watch_cache_initializations_total{group="",resource="events"} 1`,
		`apiserver_watch_list_duration_seconds_count{group="",resource="nodes",scope="cluster",version="v1"} 2`,
		`apiserver_flowcontrol_dispatched_requests_total{flow_schema="exempt",priority_level="exempt"} 9`,
		`apiserver_flowcontrol_dispatched_requests_total{flow_schema="service-accounts",priority_level="workload-low"} 6`,
		`apiserver_flowcontrol_dispatched_requests_total{flow_schema="kube-system-service-accounts",priority_level="workload-high"} 1`,
		`apiserver_flowcontrol_request_wait_duration_seconds_sum{execute="true",flow_schema="service-accounts",priority_level="workload-low"} 1.5`,
		`apiserver_flowcontrol_request_wait_duration_seconds_sum{execute="false",flow_schema="service-accounts",priority_level="workload-low"} 2`,
		`apiserver_flowcontrol_rejected_requests_total{flow_schema="service-accounts",priority_level="workload-low",reason="queue-full"} 3`,
		`apiserver_request_total{verb="GET"} 1`)
	got := after.Sub(before)
	want := Effects{
		WatchCaches: []string{"nodes", "events"}, Streamed: map[string]float64{"nodes": 2},
		Dispatched: map[string]float64{"exempt": 5, "workload-low": 6, "workload-high": 1}, Waited: 2.5, Rejected: 3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := got.Limited(); got != 7 {
		t.Errorf("%v requests were limited", got)
	}
}
