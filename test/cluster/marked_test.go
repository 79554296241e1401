//go:build linux

package main

import (
	"os"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
)

// The scenario runs each block of commands of the page.
func TestMigrationPageIsMarked(t *testing.T) {
	text, err := os.ReadFile("../../" + migrationPage)
	if err != nil {
		t.Fatal(err)
	}
	commands, files := page.Marked(string(text), "move"), page.Marked(string(text), "file")
	if all := page.OfLanguage(string(text), "sh"); len(all) != len(commands) {
		t.Errorf("%s has %d blocks of commands, %d of them with a name of their own", migrationPage, len(all), len(commands))
	}
	p := markedPage{bed: &bed{}, path: migrationPage, blocks: commands, dir: "/files"}
	for _, want := range []string{"prepare.yaml", "old-ipam.yaml", "crd.yaml"} {
		if files[want] == "" {
			t.Errorf("%s shows no %s", migrationPage, want)
		}
	}
	lines, err := p.commands("agent", "NODE", "n1")
	if err != nil || len(lines) != 3 || lines[0] != "kubectl label node n1 cilium-pool.io/old-ipam-" {
		t.Errorf("agent: %q, %v", lines, err)
	}
	if lines, err := p.commands("hold"); err != nil || lines[len(lines)-1] != "kubectl apply -f /files/old-ipam.yaml" {
		t.Errorf("hold: %q, %v", lines, err)
	}
	if _, err := p.commands("holt"); err == nil {
		t.Error("a block that is not there: no error")
	}
}
