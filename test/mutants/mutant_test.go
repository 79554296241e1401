package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// top is the root of the repository.
const top = "../.."

// TestMutantsCompile: one mutant that does not compile keeps all others from running.
func TestMutantsCompile(t *testing.T) {
	mutants, err := readMutants(top)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := weave(top, t.TempDir(), mutants)
	if err != nil {
		t.Fatal(err)
	}
	out, failed, err := command(t.Context(), top, "", "go", "build", "-overlay", overlay, "./pkg/...")
	if err != nil || failed {
		t.Errorf("building with all mutants: %v\n%s", err, out)
	}
}

// TestMutantsApply holds the list to the code: every edit still finds its place,
// and gives Go.
func TestMutantsApply(t *testing.T) {
	mutants, err := readMutants(top)
	if err != nil {
		t.Fatal(err)
	}
	names, sources := map[string]bool{}, map[string]string{}
	name := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			if !name.MatchString(m.Name) || names[m.Name] {
				t.Error("the name is of another form, or there twice")
			}
			names[m.Name] = true
			if !slices.Contains([]string{"1", "2", "3", "4", "5", "6", "7", "8", "demand", "idle", "asked"}, m.Rule) {
				t.Errorf("no such rule: %q", m.Rule)
			}
			if m.Fault == "" || len(m.Fault) > 90 {
				t.Errorf("the fault is told in %d letters; want 1 to 90", len(m.Fault))
			}
			for _, part := range m.parts()[1:] {
				if _, err := part.plant(top); err != nil {
					t.Error(err)
				}
			}
			src, err := m.parts()[0].plant(top)
			if err != nil {
				t.Fatal(err)
			}
			if other, twice := sources[src]; twice {
				t.Errorf("the same as %s", other)
			}
			sources[src] = m.Name
			if _, err := parser.ParseFile(token.NewFileSet(), m.File, src, 0); err != nil {
				t.Errorf("what comes out is not Go: %v", err)
			}
		})
	}
	if len(mutants) < 30 {
		t.Errorf("%d mutants; want at least 30", len(mutants))
	}
}

func TestPlant(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.go"), []byte("a {\n\tb(c)\n}\nd d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		m    mutant
		want string
		err  string
	}{
		"one edit, over lines": {m: mutant{edit: edit{Old: "a { b(c)", New: "e"}}, want: "e\n}\nd d\n"},
		"two edits":            {m: mutant{edit: edit{Old: "a {", New: "e {"}, Also: []edit{{Old: "b(c)", New: ""}}}, want: "e {\n\t\n}\nd d\n"},
		"not there":            {m: mutant{edit: edit{Old: "b (c)", New: "e"}}, err: "0 times"},
		"twice":                {m: mutant{edit: edit{Old: "d", New: "e"}}, err: "2 times"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.m.File = "x.go"
			got, err := test.m.plant(dir)
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, test.want, test.err)
			}
		})
	}
}

// The tests that the check "random" is made of are there under these names.
func TestRandomTestsAreThere(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, "pkg", "*", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				there[f.Name.Name] = true
			}
		}
	}
	for _, test := range randomTests() {
		if !there[test] {
			t.Errorf("no test is called %s any more", test)
		}
	}
}
