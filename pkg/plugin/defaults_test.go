package plugin

import (
	"os"
	"strings"
	"testing"
)

// The operator's defaults are told on a page that is held to its --help.
func TestDefaults(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for flag, value := range map[string]string{
		"cilium-namespace":   agentNamespace,
		"agent-selector":     agentSelector,
		"agent-settle-time":  agentSettle.String(),
		"cooldown":           cooldown.String(),
		"node-gone-cooldown": nodeGoneCooldown.String(),
		"leader-elect-name":  leaseName,
	} {
		row := "| `--" + flag + "` | `" + value + "` |"
		quoted := "| `--" + flag + "` | `\"" + value + "\"` |"
		if !strings.Contains(string(page), row) && !strings.Contains(string(page), quoted) {
			t.Errorf("docs/configuration.md does not say that --%s is %s", flag, value)
		}
	}
}
