//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDocumentedCommands(t *testing.T) {
	const page = "# Page\n\n## On kind\n\ntext\n\n```sh\nhelm repo add x y\nhelm install cilium cilium/cilium -f a.yaml \\\n  --set b=c\n```\n" +
		"   ```sh\n   kubectl apply -f pools.yaml\n   kubectl get pods\n   ```\n```yaml\nhelm install no\n```\n\n## Next\n\n```sh\nhelm install neither\n```\n"
	want := []string{"helm install cilium cilium/cilium -f a.yaml --set b=c", "kubectl apply -f pools.yaml"}
	if diff := cmp.Diff(want, documentedCommands(page, startSection)); diff != "" {
		t.Error(diff)
	}
	if got := documentedCommands(page, "## Not there"); got != nil {
		t.Errorf("of a section that is not there: %q", got)
	}
}

// The page itself installs both charts, Cilium's by its version.
func TestStartPageInstallsBothCharts(t *testing.T) {
	page, err := os.ReadFile("../../" + startPage)
	if err != nil {
		t.Fatal(err)
	}
	commands := strings.Join(documentedCommands(string(page), startSection), "\n")
	for _, want := range []string{"helm install cilium ", "helm install cilium-pool-operator "} {
		if !strings.Contains(commands, want) {
			t.Errorf("%s has no %q below %s:\n%s", startPage, want, startSection, commands)
		}
	}
	if !remoteChart.MatchString(commands) {
		t.Errorf("%s does not say which version of Cilium:\n%s", startPage, commands)
	}
}
