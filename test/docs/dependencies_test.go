package docs

import (
	"encoding/json"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
)

// module is the output of go mod edit -json.
type module struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Tool []struct{ Path string }
}

// direct returns the modules, and packages of tools, that a go.mod itself requires.
func direct(t *testing.T, gomod string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", filepath.Join(root, gomod)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var m module
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, r := range m.Require {
		if !r.Indirect {
			found = append(found, r.Path)
		}
	}
	for _, tool := range m.Tool {
		found = append(found, tool.Path)
	}
	return found
}

// The page has a heading for the folder of each go.mod, and a table of what it requires.
func TestDependenciesPage(t *testing.T) {
	page := read(t, "docs/contributing/dependencies.md")
	for _, gomod := range files(t, func(name string) bool { return name == "go.mod" }) {
		heading := "`" + path.Dir(gomod) + "`"
		if path.Dir(gomod) == "." {
			heading = "The operator"
		}
		var documented []string
		for _, row := range table(page, heading) {
			documented = append(documented, code(row[0]))
			if len(row) < 2 || row[1] == "" {
				t.Errorf("%s: no reason is given for %s", heading, row[0])
			}
		}
		sameSet(t, "docs/contributing/dependencies.md, "+heading, documented, direct(t, gomod))
	}
}
