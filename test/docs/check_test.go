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
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const checkPage = "docs/reference/check.md"

// The table of findings matches the code. go test ./test/docs -update writes it.
func TestCheckPage(t *testing.T) {
	findings, severity := "", audit.Severity("")
	for _, e := range audit.Catalogue() {
		if e.Severity != severity {
			severity = e.Severity
			findings += fmt.Sprintf("\n| %s | meaning |\n| --- | --- |\n", severity)
		}
		findings += fmt.Sprintf("| `%s`%s | %s |\n", e.Reason, modesOf(&e), e.Meaning)
	}
	generatedPart(t, checkPage, "findings", findings)
}

// modesOf returns the names of the modes that can have such a finding, or "" for all.
func modesOf(e *audit.ReasonInfo) string {
	var names []string
	for _, m := range e.Modes() {
		names = append(names, m.String())
	}
	if len(names) == len(ciliumnode.Modes()) {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
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
		harness.Must(t, os.WriteFile(filepath.Join(root, path), []byte(before+begin+want+end+after), 0o644))
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
	harness.Must(t, err)
	var want, got any
	harness.Must(t, json.Unmarshal([]byte(shown), &want))
	harness.Must(t, json.Unmarshal(again, &got))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s misses fields of a report (-shown +report):\n%s", checkPage, diff)
	}
}
