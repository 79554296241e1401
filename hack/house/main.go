// Command house prints how large the repository is, and how many files are on the way of a join
// and of a drain, beside the targets.
//
//	house                        print the table
//	house -entered PACKAGE TEST  print how many of the product's files and functions a test enters
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

func main() {
	run := table
	if len(os.Args) == 4 && os.Args[1] == "-entered" {
		run = func() error { return entered(os.Args[2], os.Args[3]) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func entered(pkg, test string) error {
	files, functions, err := enteredBy(pkg, test)
	fmt.Printf("%s: %d files, %d functions\n", test, files, functions)
	return err
}

// repository is what the files that git tracks say.
type repository struct{ product, tests, others, docs part }

func read() (*repository, error) {
	r := &repository{product: part{methods: map[string]int{}}, tests: part{methods: map[string]int{}}}
	tracked, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	for name := range strings.FieldsSeq(string(tracked)) {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) { // deleted, and not yet committed
			continue
		}
		if err == nil {
			err = r.add(name, text)
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *repository) add(name string, text []byte) error {
	top, _, nested := strings.Cut(name, "/")
	isGo := strings.HasSuffix(name, ".go")
	switch {
	case isGo && (top == "test" || strings.HasSuffix(name, "_test.go")):
		return r.tests.addGo(name, text)
	case isGo && (top == "pkg" || top == "cmd") && !generated.Match(text):
		return r.product.addGo(name, text)
	case top == "test":
		r.others.lines += bytes.Count(text, []byte("\n"))
	case strings.HasSuffix(name, ".md") && (top == "docs" || !nested):
		r.docs.size += len(bytes.Fields(text))
		r.docs.addProse(code.ReplaceAllString(string(text), " "))
	}
	return nil
}

func table() error {
	r, err := read()
	if err != nil {
		return err
	}
	files, functions, err := enteredBy("./pkg/controller/node", "TestReconcileFirstBlocks")
	if err != nil {
		return err
	}
	drain, err := drainFiles()
	if err != nil {
		return err
	}
	makefile, err := os.Stat("Makefile")
	if err != nil {
		return err
	}
	for _, row := range [][3]any{
		{"measure", "now", "target"},
		{"product lines (pkg, cmd; generated files aside)", r.product.lines, 36500},
		{"Go lines of tests, everywhere", r.tests.lines, 90000},
		{"other files under test/, lines", r.others.lines, 15000},
		{"words of documentation", r.docs.size, 50000},
		{"a join: files", files, 60},
		{"a join: functions", functions, 320},
		{"methods of the largest type of tests", r.tests.largest(), 60},
		{"methods of the largest type outside v1alpha1", r.product.largest(), 40},
		{"files visited by drain", drain, 25},
		{"noun clauses per 1,000 words, product", r.product.nounClauses(), 8},
		{"noun clauses per 1,000 words, tests", r.tests.nounClauses(), 8},
		{"noun clauses per 1,000 words, docs", r.docs.nounClauses(), 8},
		{"Makefile, bytes", makefile.Size(), 8000},
	} {
		fmt.Printf("%-48v  %-29v  %6v\n", row[0], row[1], row[2])
	}
	return nil
}

// part is a part of the repository. Its prose is comments, or pages without their code.
type part struct {
	lines, size    int            // size is in words, with all that is not prose
	methods        map[string]int // of each type
	words, clauses int            // of prose
}

func (p *part) addGo(name string, text []byte) error {
	f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	p.lines += bytes.Count(text, []byte("\n"))
	for _, c := range f.Comments {
		p.addProse(c.Text())
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && path.Base(path.Dir(name)) != "v1alpha1" {
			of, _, _ := strings.Cut(types.ExprString(fn.Recv.List[0].Type), "[")
			p.methods[path.Dir(name)+"."+strings.TrimPrefix(of, "*")]++
		}
	}
	return nil
}

func (p *part) largest() string {
	names := slices.Sorted(maps.Keys(p.methods))
	most := slices.MaxFunc(names, func(a, b string) int { return p.methods[a] - p.methods[b] })
	return fmt.Sprintf("%d (%s)", p.methods[most], most)
}

// A noun clause here is a clause as subject or object, or a phrase that hides the actor. These
// expressions are counted.
var (
	nounClause = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{
		`what(?:ever)?`, `which(?:ever)? of`, `whose`,
		`(?:of|in|to|from|for|by|at|on|with|under|without|after|before) which`,
		`those (?:that|which|who|of|in|with|it)`, `(?:the )?ones? (?:that|which)`, `(?:all|everything) (?:that|there)`,
		`how (?:many|much|long|often|far)`, `nothing|nobody|nowhere`,
		`(?:is|are|was|were|has|have|had) to`, `told|tells?`, `gives?|given|gave|giving`, `by hand`,
	}, "|") + `)\b`)
	code      = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
)

func (p *part) addProse(text string) {
	words := strings.Fields(text)
	p.words += len(words)
	p.clauses += len(nounClause.FindAllString(strings.Join(words, " "), -1))
}

func (p *part) nounClauses() string {
	return fmt.Sprintf("%.1f", 1000*float64(p.clauses)/float64(max(1, p.words)))
}
