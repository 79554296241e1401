package docs

import (
	"encoding/json"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
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
	harness.Must(t, err)
	var m module
	harness.Must(t, json.Unmarshal(out, &m))
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

var dependency = regexp.MustCompile("(?m)^- `([^`]+)`: \\S")

// The page has a heading for the folder of each go.mod, and a list of its direct requirements
// with reasons.
func TestDependenciesPage(t *testing.T) {
	page := read(t, "docs/contributing/dependencies.md")
	for _, gomod := range files(t, func(name string) bool { return name == "go.mod" }) {
		heading := "`" + path.Dir(gomod) + "`"
		if path.Dir(gomod) == "." {
			heading = "The operator"
		}
		_, section, _ := strings.Cut(page, "\n## "+heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		var documented []string
		for _, m := range dependency.FindAllStringSubmatch(section, -1) {
			documented = append(documented, m[1])
		}
		sameSet(t, "docs/contributing/dependencies.md, "+heading, documented, direct(t, gomod))
	}
}
