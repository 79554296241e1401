package main

import (
	"slices"
	"strings"
	"testing"
)

func TestIsClaimFor(t *testing.T) {
	const claim = `{"type":"ADDED","object":{"spec":{"cidr":"10.0.0.0/27","nodeName":"node-00001","poolName":"bench"}}}`
	for event, want := range map[string]bool{
		claim: true,
		strings.Replace(claim, "ADDED", "MODIFIED", 1):     false,
		strings.Replace(claim, "node-00001", "node-2", 1):  false,
		strings.Replace(claim, "node-00001", "node-10", 1): false,
	} {
		if got := isClaimFor([]byte(event), "node-00001"); got != want {
			t.Errorf("%s: %t, want %t", event, got, want)
		}
	}
	if isClaimFor([]byte(claim), "node-0000") {
		t.Error("a part of a name is taken for it")
	}
}

// Other measures run the operator with a longer Lease, so that it does not lose the Lease
// under its own load.
func TestWithItsLease(t *testing.T) {
	got := withItsLease([]string{"operator", leaseFlag + leaseDuration, "--mode=crd"})
	if want := []string{"operator", "--mode=crd"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFailoverTable(t *testing.T) {
	if got := failoverTable(keep(nil)); got != "" {
		t.Errorf("of nothing measured: %q", got)
	}
	got := failoverTable(keep([]results{{Commit: "abc", Samples: []sample{{Measure: "failover", Contender: ours, Nodes: 20, Values: map[string]float64{
		"killed times": 5, "killed claim p50 s": 16, "killed claim max s": 18, "killed publish p50 s": 17, "killed publish max s": 19,
		"stopped times": 4, "stopped claim p50 s": 0.5, "stopped claim max s": 0.8, "stopped publish p50 s": 0.6, "stopped publish max s": 0.9,
	}}}}}))
	for _, row := range []string{"| 20 | killed | 5 | 16 | 18 | 17 | 19 | abc |", "| 20 | stopped | 4 | 0.50 | 0.80 | 0.60 | 0.90 | abc |"} {
		if !strings.Contains(got, row) {
			t.Errorf("it lacks %q:\n%s", row, got)
		}
	}
}
