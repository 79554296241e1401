package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// source is the syntax of a package's files, without its tests.
func source(t *testing.T, dir string) []*ast.File {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	return parsed
}

// constants are the values of a package's string constants whose name, or the
// name of whose type, one of the prefixes begins.
func constants(t *testing.T, dir string, prefixes ...string) []string {
	t.Helper()
	var values []string
	for _, f := range source(t, dir) {
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				continue
			}
			for _, s := range decl.Specs {
				values = append(values, valuesOf(s.(*ast.ValueSpec), prefixes)...)
			}
		}
	}
	if len(values) == 0 {
		t.Fatalf("%s has no constants %v", dir, prefixes)
	}
	return values
}

func valuesOf(spec *ast.ValueSpec, prefixes []string) []string {
	var values []string
	for i, name := range spec.Names {
		kind, _ := spec.Type.(*ast.Ident)
		for _, p := range prefixes {
			if !strings.HasPrefix(name.Name, p) && (kind == nil || kind.Name != p) {
				continue
			}
			if v, ok := text(spec.Values[i]); ok && v != "" {
				values = append(values, v)
			}
			break
		}
	}
	return values
}

// literalReasons are reasons of conditions that are written where they are set.
func literalReasons(t *testing.T, dir string) []string {
	t.Helper()
	var values []string
	for _, f := range source(t, dir) {
		ast.Inspect(f, func(n ast.Node) bool {
			if kv, ok := n.(*ast.KeyValueExpr); ok {
				if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Reason" {
					if v, ok := text(kv.Value); ok {
						values = append(values, v)
					}
				}
			}
			return true
		})
	}
	return values
}

func text(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	v, err := strconv.Unquote(literal.Value)
	return v, err == nil
}

func TestEventsPage(t *testing.T) {
	page := read(t, "docs/events.md")
	column := func(heading string, n int) []string {
		var names []string
		for _, row := range table(page, heading) {
			names = append(names, code(row[n]))
		}
		return names
	}
	sameSet(t, "events", column("Events", 0), constants(t, "pkg/controller", "Event"))
	sameSet(t, "conditions of pools", unique(column("Conditions of a PodIPPool", 0)), constants(t, "pkg/crd/v1alpha1", "Pool"))
	sameSet(t, "reasons of pools", unique(column("Conditions of a PodIPPool", 2)), constants(t, "pkg/controller", "Reason"))
	sameSet(t, "conditions of blocks", unique(column("Conditions of a PodIPBlock", 0)), constants(t, "pkg/crd/v1alpha1", "Block"))
	reasons := append(constants(t, "pkg/crd/v1alpha1", "Reason"), literalReasons(t, "pkg/controller")...)
	sameSet(t, "reasons of blocks", column("Conditions of a PodIPBlock", 1), reasons)
	sameSet(t, "reasons of blocks, as decided", constants(t, "pkg/expand", "Reason"), constants(t, "pkg/crd/v1alpha1", "Reason"))
	sameSet(t, "conditions of Nodes", unique(column("Condition of a Node", 0)), constants(t, "pkg/controller", "Shortage"))
	sameSet(t, "reasons of Nodes", column("Condition of a Node", 2), constants(t, "pkg/controller", "reason"))
	sameSet(t, "what a drain waits for", column("What a drain waits for", 0), constants(t, "pkg/expand", "WaitReason"))
}

func unique(names []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, n := range names {
		if !seen[n] {
			out = append(out, n)
		}
		seen[n] = true
	}
	return out
}
