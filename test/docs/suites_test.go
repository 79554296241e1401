package docs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// docs/testing.md says in one sentence of each suite what only it finds.
func TestEachSuiteSaysWhy(t *testing.T) {
	noSuites := []string{"test/cilium", "test/fakeapi", "test/fixtures", "test/harness"} // what suites share
	var documented []string
	for _, row := range table(read(t, "docs/testing.md"), "What only each suite finds") {
		documented = append(documented, code(row[0]))
		if len(row) != 2 || row[1] == "" {
			t.Errorf("%q says nothing", row)
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, "test"))
	if err != nil {
		t.Fatal(err)
	}
	suites := []string{"test/sim/exhaust", "test/sim/points"}
	for _, e := range entries {
		if name := "test/" + e.Name(); e.IsDir() && !slices.Contains(noSuites, name) {
			suites = append(suites, name)
		}
	}
	sameSet(t, "docs/testing.md, suites", documented, suites)
}
