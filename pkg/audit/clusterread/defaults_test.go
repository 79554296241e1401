package clusterread

import (
	"os"
	"strings"
	"testing"
)

// A page that is compared with the operator's --help lists the operator's defaults.
func TestDefaults(t *testing.T) {
	page, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "| `--leader-elect-name` | `\""+LeaseName+"\"` |") {
		t.Errorf("docs/configuration.md does not say that --leader-elect-name is %s", LeaseName)
	}
}
