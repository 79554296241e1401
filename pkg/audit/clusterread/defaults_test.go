package clusterread

import (
	"os"
	"strings"
	"testing"
)

// The chart, whose operator has no flag for its name, and the commands use the same Lease.
func TestDefaults(t *testing.T) {
	rights, err := os.ReadFile("../../../charts/cilium-pool-operator/templates/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(rights), "resources: [leases]\n  resourceNames: ["+LeaseName+"]\n") {
		t.Errorf("the chart gives no rights to the Lease %s", LeaseName)
	}
}
