package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// docs/contributing/testing.md says for each suite how to run it and why it exists.
func TestEachSuiteSaysWhy(t *testing.T) {
	noSuites := []string{"test/cilium", "test/fakeapi", "test/fixtures", "test/harness"} // shared by suites
	var documented []string
	for _, row := range table(read(t, "docs/contributing/testing.md"), "Suites") {
		documented = append(documented, code(row[0]))
		if len(row) != 3 || row[1] == "" || row[2] == "" {
			t.Errorf("%q says nothing", row)
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, "test"))
	harness.Must(t, err)
	suites := []string{"test/sim/points"}
	for _, e := range entries {
		if name := "test/" + e.Name(); e.IsDir() && !slices.Contains(noSuites, name) {
			suites = append(suites, name)
		}
	}
	sameSet(t, "docs/contributing/testing.md, suites", documented, suites)
}

// Each test and script that docs/contributing/testing.md names as the proof of a capability exists.
func TestProofsOfModes(t *testing.T) {
	var tests strings.Builder
	proofs := map[string]bool{}
	for _, file := range files(t, func(name string) bool {
		return strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".txtar")
	}) {
		if name, script := strings.CutSuffix(path.Base(file), ".txtar"); script {
			proofs[name] = true
		} else {
			tests.WriteString(read(t, file))
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(tests.String(), -1) {
		proofs[m[1]] = true
	}
	named := 0
	for _, row := range table(read(t, "docs/contributing/testing.md"), "Proofs of the modes") {
		for _, m := range codeSpan.FindAllStringSubmatch(strings.Join(row[1:], " "), -1) {
			if named++; !proofs[m[1]] {
				t.Errorf("docs/contributing/testing.md: no test or script is called %s", m[1])
			}
		}
	}
	if named < 30 {
		t.Errorf("docs/contributing/testing.md names %d proofs: it has more", named)
	}
}

// The documented number of mutants matches the list.
func TestNumberOfMutants(t *testing.T) {
	mutants := 0
	for _, path := range files(t, func(name string) bool { return strings.HasSuffix(name, ".yaml") }) {
		if strings.HasPrefix(path, "test/mutants/list/") {
			mutants += len(regexp.MustCompile(`(?m)^- name:`).FindAllString(read(t, path), -1))
		}
	}
	if want := strconv.Itoa(mutants) + " ways to be wrong are known by name"; !strings.Contains(read(t, "docs/contributing/testing.md"), want) {
		t.Errorf("docs/contributing/testing.md does not say: %s", want)
	}
}

// docs/contributing/architecture.md lists each package below pkg.
func TestPackagesOnArchitecturePage(t *testing.T) {
	var documented, packages []string
	for _, f := range fences(read(t, "docs/contributing/architecture.md")) {
		if f.language == "" {
			documented = append(documented, regexp.MustCompile(`\bpkg/[a-z]+`).FindAllString(f.code, -1)...)
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, "pkg"))
	harness.Must(t, err)
	for _, e := range entries {
		packages = append(packages, "pkg/"+e.Name())
	}
	sameSet(t, "docs/contributing/architecture.md, packages", unique(documented), packages)
}
