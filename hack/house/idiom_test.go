package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// functionWords are words that name no value: a variable is a noun.
var functionWords = regexp.MustCompile(`^(of|is|in|on|by|at|to|has|may|are|was|with|from|there|stands|says|goes|some|more|none|others?|left|kept|` +
	`ends|own|again|before|after|until|since|about|around|here|back|gone|within|without|beside|news|missed|do|asks?|asked|told|wants|gets|gives|` +
	`held|holds|lacks|leaves|for|both|all|twice|why|what|where|how|who|whose|whether|which)$`)

// idioms counts the marks of a dialect in Go code, by kind, with their places.
type idioms struct {
	files *token.FileSet
	lines int
	names int
	marks map[string][]string
}

func (i *idioms) mark(kind string, node ast.Node) {
	i.marks[kind] = append(i.marks[kind], "\n  "+i.files.Position(node.Pos()).String())
}

// define counts the definition of a variable, parameter or field.
func (i *idioms) define(nodes ...ast.Expr) {
	for _, node := range nodes {
		name, ok := node.(*ast.Ident)
		if !ok || name.Name == "_" {
			continue
		}
		i.names++
		if functionWords.MatchString(name.Name) {
			i.mark("names that are function words", name)
		}
	}
}

func (i *idioms) add(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.AssignStmt:
		if len(node.Lhs) > 1 && len(node.Rhs) == len(node.Lhs) {
			i.mark("parallel assignments", node)
		}
		if node.Tok == token.DEFINE {
			i.define(node.Lhs...)
		}
	case *ast.RangeStmt:
		if node.Tok == token.DEFINE {
			i.define(node.Key, node.Value)
		}
	case *ast.Field:
		for _, name := range node.Names {
			i.define(name)
		}
	case *ast.ValueSpec:
		for _, name := range node.Names {
			i.define(name)
		}
	case *ast.SwitchStmt:
		i.addSwitch(node)
	}
	return true
}

func (i *idioms) addSwitch(node *ast.SwitchStmt) {
	if node.Tag != nil {
		return
	}
	i.mark("switches without a tag", node)
	if node.Init != nil {
		i.mark("switches with a statement and no tag", node)
	}
	for _, clause := range node.Body.List {
		if len(clause.(*ast.CaseClause).Body) == 0 {
			i.mark("cases without a body", clause)
		}
	}
}

// TestIdiom holds the product to the language of its field: one assignment a line, a tag where there is a switch,
// and nouns for variables.
func TestIdiom(t *testing.T) {
	t.Chdir("../..")
	tracked, err := exec.Command("git", "ls-files", "pkg", "cmd").Output()
	if err != nil {
		t.Fatal(err)
	}
	idioms := &idioms{files: token.NewFileSet(), marks: map[string][]string{}}
	for name := range strings.FieldsSeq(string(tracked)) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil || bytes.Contains(text, []byte("DO NOT EDIT")) {
			continue
		}
		file, err := parser.ParseFile(idioms.files, name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		idioms.lines += bytes.Count(text, []byte("\n"))
		ast.Inspect(file, idioms.add)
	}
	for kind, limit := range map[string]struct {
		most float64
		of   int
	}{
		"parallel assignments":                 {0.002, idioms.lines},
		"switches without a tag":               {0.002, idioms.lines},
		"cases without a body":                 {0.0002, idioms.lines},
		"switches with a statement and no tag": {0, idioms.lines},
		"names that are function words":        {0.015, idioms.names},
	} {
		if marks := idioms.marks[kind]; float64(len(marks)) > limit.most*float64(limit.of) {
			t.Errorf("%d %s, of %d: the limit is %v%s", len(marks), kind, limit.of, limit.most, fmt.Sprint(marks[:min(len(marks), 30)]))
		}
	}
}
