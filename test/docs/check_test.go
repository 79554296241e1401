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

const checkPage = "docs/reference/check.md"

// The tables of findings and flags match the code. go test ./test/docs -update writes them.
func TestCheckPage(t *testing.T) {
	findings := "| severity | reason | modes | meaning | first step |\n| --- | --- | --- | --- | --- |\n"
	for _, e := range audit.Catalogue() {
		findings += fmt.Sprintf("| %s | `%s` | %s | %s | %s |\n", e.Severity, e.Reason, modesOf(&e), e.Meaning, firstStep(&e))
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

// firstStep returns the first sentence of a fix, and whether the operator does it.
func firstStep(e *audit.Entry) string {
	const operator = "The operator fixes this by itself"
	step, _, more := strings.Cut(e.Fix, ". ")
	if strings.HasPrefix(step, operator) {
		return "The operator fixes it."
	}
	if more {
		step += "."
	}
	if strings.Contains(e.Fix, operator) {
		step += " The operator fixes it."
	}
	return step
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
