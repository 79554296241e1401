//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
)

func TestScenariosAreInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/contributing/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	for before, list := range map[string]string{"Scenarios: ": "all", "Moves: ": "migrate", "Modes: ": "modes"} {
		listed, err := script.Choose(scenarios(), list)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(page), before)
		list, _, _ := strings.Cut(after, ".\n")
		var names []string
		for _, s := range listed {
			names = append(names, s.Name)
		}
		if diff := cmp.Diff(names, strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })); diff != "" {
			t.Errorf("docs/contributing/testing.md lists other scenarios (-code +docs):\n%s", diff)
		}
	}
}
