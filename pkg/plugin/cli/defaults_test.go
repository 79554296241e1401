package cli

import (
	"os"
	"strings"
	"testing"
)

// The operator's defaults are on a page that is held to its --help.
func TestDefaults(t *testing.T) {
	page, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "| `--leader-elect-name` | `\""+LeaseName+"\"` |") {
		t.Errorf("docs/configuration.md does not say that --leader-elect-name is %s", LeaseName)
	}
}
