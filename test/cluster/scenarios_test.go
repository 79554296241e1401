//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
)

// Every scenario has a script, and the page names it, or the part before the dash.
func TestScenariosHaveScripts(t *testing.T) {
	for _, s := range scenarios() {
		if _, err := scripts.ReadFile("testdata/" + s.Script()); err != nil {
			t.Error(err)
		}
	}
}

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
	for _, want := range []string{"helm install cilium ", "helm install cilium-pool-operator ", "kubectl apply ", labelNodes} {
		if !strings.Contains(commands, want) {
			t.Errorf("%s has no %q between its marks:\n%s", startPage, want, commands)
		}
	}
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := remoteChart.FindStringSubmatch(commands)
	if m == nil || !strings.Contains(string(module), "github.com/cilium/cilium v"+m[1]+"\n") {
		t.Errorf("%s installs Cilium by %q, which is not the version in go.mod", startPage, m)
	}
}

// Scripts run each block of commands of the page.
func TestMigrationPageIsMarked(t *testing.T) {
	var run, text string
	for _, name := range []string{"migration", "observe", "move"} {
		script, err := scripts.ReadFile("testdata/" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		run += string(script)
	}
	for _, path := range migrationPages() {
		content, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		text += string(content)
		all := page.OfLanguage(string(content), "sh")
		if named := page.Marked(string(content), "move"); path == "docs/migration.md" && len(all) != len(named) {
			t.Errorf("%s has %d blocks of commands, %d of them with a name of their own", path, len(all), len(named))
		}
	}
	for name := range page.Marked(text, "move") {
		if name != "drain" && !strings.Contains(run, "block "+name+"\n") && !strings.Contains(run, "block "+name+" ") {
			t.Errorf("no script runs the block %s", name)
		}
	}
	files := page.Marked(text, "file")
	for _, want := range []string{"prepare.yaml", "old-ipam.yaml", "crd.yaml", "new-ipam.yaml", "back-ipam.yaml"} {
		if files[want] == "" {
			t.Errorf("no page shows %s", want)
		}
	}
	moves := movesOf(text, "/files")
	for name, want := range map[string]string{
		"hold": "\nkubectl apply -f /files/old-ipam.yaml\n", "prepare-agent": "\nuntil kubectl -n kube-system wait pod -l k8s-app=cilium --field-selector spec.nodeName=NODE ",
	} {
		if !strings.Contains(moves[name], want) {
			t.Errorf("%s is %q, without %q", name, moves[name], want)
		}
	}
}

func TestLacksAddress(t *testing.T) {
	const setup = `failed to setup network for sandbox "2782": plugin type="cilium-cni" failed (add): `
	for message, want := range map[string]bool{
		setup + `unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure "all CIDR ranges are exhausted"`:                             true,
		setup + `unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure "No more IPs available"`:                                     true,
		setup + `unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure "unable to determine IPAM pool for owner \"default/web-1\""`: false,
		setup + `unable to create endpoint: [PUT /endpoint/{id}][429] putEndpointIdTooManyRequests`:                                                           false,
	} {
		if got := lacksAddress(message); got != want {
			t.Errorf("%t, want %t: %s", got, want, message)
		}
	}
}
