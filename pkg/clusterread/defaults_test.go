package clusterread

import (
	"os"
	"strings"
	"testing"
)

// The chart, whose operator has no flag for its name, and the commands use the same Lease.
func TestDefaults(t *testing.T) {
	helpers, err := os.ReadFile("../../charts/cilium-pool-operator/templates/_helpers.tpl")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(helpers), `{{- define "leaseName" -}}`+"\n"+LeaseName+"\n") {
		t.Errorf("the chart names another Lease than %s", LeaseName)
	}
}
