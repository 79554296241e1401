package docs

import (
	"go/version"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// workflow is the part of a file of .github/workflows about its steps.
type workflow struct {
	Jobs map[string]struct {
		Strategy struct {
			Matrix struct {
				Include []map[string]string `json:"include"`
			} `json:"matrix"`
		} `json:"strategy"`
		Steps []struct {
			Uses string         `json:"uses"`
			Run  string         `json:"run"`
			With map[string]any `json:"with"`
		} `json:"steps"`
	} `json:"jobs"`
}

var (
	makeOnly = regexp.MustCompile(`^(?:sudo --preserve-env env "PATH=\$PATH" )?make ([^\n;&|]+)$`)
	// expression matches an expression of the forge.
	expression = regexp.MustCompile(`\$\{\{.*?\}\}`)
	pinned     = regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40}$`)
)

// makefiles are the Makefile and its included files.
func makefiles(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, path := range files(t, func(name string) bool { return name == "Makefile" || strings.HasSuffix(name, ".mk") }) {
		all.WriteString("\n" + read(t, path))
	}
	return all.String()
}

// workflows returns the workflows by their paths.
func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	found := map[string]workflow{}
	for _, path := range files(t, func(name string) bool { return strings.HasSuffix(name, ".yaml") }) {
		if strings.HasPrefix(path, ".github/workflows/") {
			var w workflow
			harness.Must(t, yaml.Unmarshal([]byte(read(t, path)), &w))
			found[path] = w
		}
	}
	return found
}

// The toolchain of go.mod builds everywhere: in the Dockerfile, and in all workflows. setup-go takes
// the toolchain of go-version-file and forbids another (GOTOOLCHAIN=local), so no module may need
// a newer one.
func TestOneToolchain(t *testing.T) {
	line := regexp.MustCompile(`(?m)^toolchain (go\S+)$`).FindStringSubmatch(read(t, "go.mod"))
	if line == nil {
		t.Fatal("go.mod has no line toolchain")
	}
	toolchain := line[1]
	if image := "golang:" + strings.TrimPrefix(toolchain, "go") + "@sha256:"; !strings.Contains(read(t, "Dockerfile"), image) {
		t.Errorf("the Dockerfile does not build FROM %s..., the toolchain of go.mod", image)
	}
	for path, w := range workflows(t) {
		for name, job := range w.Jobs {
			for _, s := range job.Steps {
				if strings.HasPrefix(s.Uses, "actions/setup-go@") && (s.With["go-version-file"] != "go.mod" || s.With["go-version"] != nil) {
					t.Errorf("%s, job %s: setup-go takes another version than go-version-file: go.mod", path, name)
				}
			}
		}
	}
	matches(t, files(t, func(name string) bool { return name == "go.mod" }), whole, `(?m)^go (\S+)$`, 20, func(path string, m []string) {
		if version.Compare("go"+m[1], toolchain) > 0 {
			t.Errorf("%s needs Go %s, newer than the toolchain of go.mod, %s", path, m[1], toolchain)
		}
	})
}

// Workflows call existing make targets, so that all of them can be run without a forge, and
// actions by commit.
func TestWorkflows(t *testing.T) {
	makefile := makefiles(t)
	called := 0
	for path, w := range workflows(t) {
		for _, job := range w.Jobs {
			var lines []string
			for _, s := range job.Steps {
				if s.Uses != "" && !pinned.MatchString(s.Uses) {
					t.Errorf("%s: %s is not pinned by commit", path, s.Uses)
				}
				if s.Run != "" && !strings.Contains(s.Run, "matrix.make") {
					lines = append(lines, s.Run)
				}
			}
			for _, include := range job.Strategy.Matrix.Include {
				if target := include["make"]; target != "" {
					lines = append(lines, "make "+target)
				}
			}
			for _, line := range lines {
				m := makeOnly.FindStringSubmatch(line)
				if m == nil {
					t.Errorf("%s runs %q: that is no make target", path, line)
					continue
				}
				for _, target := range strings.Fields(expression.ReplaceAllString(m[1], "x")) {
					called++
					if !strings.Contains(target, "=") && !strings.Contains(makefile, "\n"+target+":") {
						t.Errorf("%s: the Makefile has no target %s", path, target)
					}
				}
			}
		}
	}
	if called < 10 {
		t.Errorf("%d targets found in the workflows: they call more", called)
	}
}
