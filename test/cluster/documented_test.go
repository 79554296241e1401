//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDocumentedCommands(t *testing.T) {
	const page = "# Page\n```sh\nhelm install neither\n```\n" + beginMark + "\n```sh\nhelm install a b -f a.yaml \\\n  --set b=c\n# why\n```\n" +
		"   ```sh\n   kubectl apply -f pools.yaml\n   ```\n```yaml\nhelm install no\n```\n" + endMark + "\n```sh\nhelm install no\n```\n"
	want := []string{"helm install a b -f a.yaml --set b=c", "kubectl apply -f pools.yaml"}
	if diff := cmp.Diff(want, documentedCommands(page)); diff != "" {
		t.Error(diff)
	}
	if got := documentedCommands("```sh\nhelm install a b\n```\n"); got != nil {
		t.Errorf("without marks: %q", got)
	}
}

// The page installs both charts, Cilium's in the version that is built.
func TestStartPageInstallsBothCharts(t *testing.T) {
	page, err := os.ReadFile("../../" + startPage)
	if err != nil {
		t.Fatal(err)
	}
	commands := strings.Join(documentedCommands(string(page)), "\n")
	for _, want := range []string{"helm install cilium ", operatorInstall, "kubectl apply ", labelNodes} {
		if !strings.Contains(commands, want) {
			t.Errorf("%s has no %q between its marks:\n%s", startPage, want, commands)
		}
	}
	module, err := os.ReadFile("../cilium/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := remoteChart.FindStringSubmatch(commands)
	if m == nil || !strings.Contains(string(module), "github.com/cilium/cilium v"+m[1]+"\n") {
		t.Errorf("%s installs Cilium by %q, which is not the version in test/cilium/go.mod", startPage, m)
	}
}
