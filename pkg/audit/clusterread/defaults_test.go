package clusterread

import (
	"os"
	"strings"
	"testing"
)

// The chart and the commands use the same Lease.
func TestDefaults(t *testing.T) {
	values, err := os.ReadFile("../../../charts/cilium-pool-operator/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(values), "\n  leaseName: "+LeaseName+"\n") {
		t.Errorf("the chart's leaderElection.leaseName is not %s", LeaseName)
	}
}
