// Command house prints the size of the repository, and the files on the way of a join and of a
// drain, beside the targets.
//
//	house                        print the table
//	house -entered PACKAGE TEST  print how many of the product's files and functions a test enters
//	house -sentences PREFIX      print the noun clauses of the files below a path, with their sentences
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
	switch {
	case len(os.Args) == 4 && os.Args[1] == "-entered":
		run = func() error { return entered(os.Args[2], os.Args[3]) }
	case len(os.Args) == 3 && os.Args[1] == "-sentences":
		run = func() error { return sentences(os.Args[2]) }
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

func sentences(prefix string) error {
	r, err := read()
	if err != nil {
		return err
	}
	for _, place := range slices.Sorted(maps.Keys(r.prose)) {
		for _, c := range r.prose[place].clauses {
			if strings.HasPrefix(c.at, prefix) {
				fmt.Println(c)
			}
		}
	}
	return nil
}

// repository holds the sizes of the files that git tracks, and the prose of each package and page.
type repository struct {
	product, tools, tests, others, docs part
	prose                               map[string]*prose // of a package, its tests, or a page
}

func read() (*repository, error) {
	r := &repository{product: newPart(), tools: newPart(), tests: newPart(), prose: map[string]*prose{}}
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
		return r.addGo(&r.tests, "tests of "+path.Dir(name), name, text)
	case isGo && !generated.Match(text):
		p := &r.product
		if top != "api" && top != "pkg" && top != "cmd" {
			p = &r.tools
		}
		return r.addGo(p, path.Dir(name), name, text)
	case top == "test":
		r.others.lines += bytes.Count(text, []byte("\n"))
	case strings.HasSuffix(name, ".md") && (top == "docs" || !nested):
		r.docs.size += len(bytes.Fields(text))
		r.addProse(&r.docs, name, name, 1, code.ReplaceAllStringFunc(string(text), func(code string) string {
			return " " + strings.Repeat("\n", strings.Count(code, "\n"))
		}))
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
		{"product lines (api, pkg, cmd; generated files aside)", r.product.lines, 36500},
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
	lines, size    int            // size is in words, prose and the rest
	methods        map[string]int // of each type
	words, clauses int            // of prose
}

func newPart() part { return part{methods: map[string]int{}} }

func (r *repository) addGo(p *part, place, name string, text []byte) error {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	p.lines += bytes.Count(text, []byte("\n"))
	for _, c := range f.Comments {
		r.addProse(p, place, name, files.Position(c.Pos()).Line, c.Text())
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
	nounClause = regexp.MustCompile(`(?i)\b(?:` + strings.ReplaceAll(strings.Join([]string{
		`what(?:ever)?`, `which(?:ever)? of`, `whose`,
		`(?:of|in|to|from|for|by|at|on|with|under|without|after|before) which`,
		`those (?:that|which|who|of|in|with|it)`, `(?:the )?ones? (?:that|which)`, `(?:all|everything) (?:that|there)`,
		`how (?:many|much|long|often|far)`, `nothing|nobody|nowhere`,
		`(?:is|are|was|were|has|have|had) to`, `told|tells?`, `gives?|given|gave|giving`, `by hand`,
	}, "|"), " ", `\s+`) + `)\b`)
	code        = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
	sentenceEnd = regexp.MustCompile(`[.!?:|]\s|\n\s*\n`)
	generated   = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
)

// prose is the prose of one package, of its tests, or of one page.
type prose struct {
	words   int
	clauses []clause
}

// clause is a noun clause in a sentence.
type clause struct{ at, words, sentence string }

func (c clause) String() string { return fmt.Sprintf("%s: %q in: %s", c.at, c.words, c.sentence) }

// addProse adds a text that begins at a line of a file.
func (r *repository) addProse(p *part, place, file string, line int, text string) {
	if r.prose[place] == nil {
		r.prose[place] = &prose{}
	}
	found := nounClause.FindAllStringIndex(text, -1)
	words := len(strings.Fields(text))
	p.words += words
	p.clauses += len(found)
	r.prose[place].words += words
	for _, f := range found {
		before, after := text[:f[0]], text[f[0]:]
		if ends := sentenceEnd.FindAllStringIndex(before, -1); ends != nil {
			before = before[ends[len(ends)-1][1]:]
		}
		if end := sentenceEnd.FindStringIndex(after); end != nil {
			after = after[:end[0]+1]
		}
		r.prose[place].clauses = append(r.prose[place].clauses, clause{
			at:       fmt.Sprintf("%s:%d", file, line+strings.Count(text[:f[0]], "\n")),
			words:    text[f[0]:f[1]],
			sentence: strings.Join(strings.Fields(before+after), " "),
		})
	}
}

func (p *part) nounClauses() string {
	return fmt.Sprintf("%.1f", 1000*float64(p.clauses)/float64(max(1, p.words)))
}
