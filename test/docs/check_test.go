package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

const checkPage = "docs/check.md"

// The tables of findings and flags match the code. go test ./test/docs -update writes them.
func TestCheckPage(t *testing.T) {
	findings := "| severity | reason | modes | what is wrong | what to do |\n| --- | --- | --- | --- | --- |\n"
	for _, e := range audit.Catalogue() {
		findings += fmt.Sprintf("| %s | `%s` | %s | %s | %s |\n", e.Severity, e.Reason, modesOf(&e), e.Meaning, fixesOf(&e))
	}
	generatedPart(t, checkPage, "findings", findings)
	generatedPart(t, checkPage, "check flags", flagTable(t, "check"))
}

// modesOf returns the names of the modes that can have such a finding.
func modesOf(e *audit.Entry) string {
	var names []string
	for _, m := range e.Modes() {
		names = append(names, m.String())
	}
	if len(names) == len(ciliumnode.Modes()) {
		return "all"
	}
	return strings.Join(names, ", ")
}

// fixesOf returns what to do, and what to do in modes in which it differs.
func fixesOf(e *audit.Entry) string {
	fixes := e.Fix
	for _, m := range e.Modes() {
		if fix := e.FixIn(m); fix != e.Fix {
			fixes += fmt.Sprintf(" **In %s mode:** %s", m, fix)
		}
	}
	return fixes
}

// generatedPart compares the text between two marks of a page with want.
func generatedPart(t *testing.T, path, mark, want string) {
	t.Helper()
	begin, end := "<!-- "+mark+": begin -->\n", "<!-- "+mark+": end -->"
	page := read(t, path)
	before, rest, ok := strings.Cut(page, begin)
	documented, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for it, between %s and %s", path, begin, end)
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, path), []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("%s (-code +%s); go test ./test/docs -update fixes it:\n%s", mark, path, diff)
	}
}

// The JSON on the page has the fields of a report, and no others.
func TestCheckJSON(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, checkPage), "```json\n")
	shown, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatalf("%s shows no JSON", checkPage)
	}
	var report audit.Report
	decoder := json.NewDecoder(strings.NewReader(shown))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil {
		t.Fatalf("%s: %v", checkPage, err)
	}
	again, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal([]byte(shown), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(again, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s misses fields of a report (-shown +report):\n%s", checkPage, diff)
	}
}
