package docs

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// plain maps words that pages, the chart, the examples and printed messages avoid to their
// replacements. The glossary of docs/concepts.md has the terms.
var plain = map[string]string{
	`nobody|somebody|anybody`:                  "name the actor",
	`(?:is|are|was|were|be|been|being) told`:   "assigned, reported, logged, configured or listed",
	`on end`:                                   "without interruption",
	`rested|resting|block rests|blocks rest`:   "cools down",
	`gives? up|given up|hands? out|handed out`: "returns, frees, assigns",
	`gives? out|given out`:                     "assigns",
	`reckon|reckons|reckoned`:                  "compute",
	`mend|mends|mended`:                        "fix",
}

func TestPlainWords(t *testing.T) {
	texts := map[string]string{}
	for _, path := range files(t, func(name string) bool {
		return isMarkdown(name) || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".tpl") || name == "NOTES.txt"
	}) {
		if isMarkdown(path) || strings.HasPrefix(path, "examples/") || strings.HasPrefix(path, "charts/") {
			texts[path] = oneLine(codeSpan.ReplaceAllString(read(t, path), ""))
		}
	}
	if len(texts) < 100 {
		t.Fatalf("%d pages found: there are more", len(texts))
	}
	for path, f := range sources(t, "pkg/", "cmd/") {
		texts[path] = oneLine(literals(f))
	}
	for words, better := range plain {
		word := regexp.MustCompile(`(?i)\b(?:` + words + `)\b`)
		for path, page := range texts {
			for _, at := range word.FindAllStringIndex(page, -1) {
				t.Errorf("%s: %q; rather: %s", path, page[max(0, at[0]-30):min(len(page), at[1]+30)], better)
			}
		}
	}
}

// oneLine returns a text without line breaks, which may split an expression.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// literals returns the strings of a file, which are used in messages.
func literals(f *ast.File) string {
	var all strings.Builder
	ast.Inspect(f, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if s, ok := text(e); ok {
				all.WriteString(s + "\n")
			}
		}
		return true
	})
	return all.String()
}
