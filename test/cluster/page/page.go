// Package page reads the code blocks of a documentation page, and the comments that say how a
// test runs them. It runs no code.
//
// Each block of sh runs unless a comment right above it excuses it:
//
//	<!-- not run: it needs Docker -->
//
// These comments say how a block runs, and there may be several:
//
//	<!-- after docs/install.md -->     before it: the installation of that page
//	<!-- setup:                      before it: commands that make what the text
//	kubectl ...                      takes for granted, up to the comment's end
//	-->
//	<!-- exits with 3 -->            its exit code, 0 unless given
//	<!-- prints: Draining -->        its output has this text
//	<!-- until it prints: Ready -->  it runs again until its output has this text
//
// A block of yaml is only shown, unless <!-- applied --> is above it: then kubectl
// apply gets it.
package page

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Pages returns the pages with blocks to run, each from top to bottom on its own empty
// cluster.
func Pages() []string {
	return []string{"README.md", "docs/install.md", "docs/operations.md"}
}

// stands maps the placeholders of the pages to the names that replace them when the pages run.
var stands = map[string]string{
	"NODE":       "n1",
	"beijing-01": "n1",
	"POOL":       "beijing",
}

var word = regexp.MustCompile(`\b(NODE|POOL|beijing-01)\b`)

// Named replaces the placeholders in code.
func Named(code string) string {
	return word.ReplaceAllStringFunc(code, func(w string) string { return stands[w] })
}

// Block is a code block that runs or is excused.
type Block struct {
	// Line is the line number of the block's fence, from 1.
	Line int
	// Heading is the heading above it, without its number signs.
	Heading string
	// Language is sh, or yaml for a manifest to apply.
	Language string
	// Code is without the indentation of the list that it may be in.
	Code string

	// NotRun is the reason why it does not run; it runs if this is empty.
	NotRun string
	// AfterStart requires the installation of docs/install.md before it.
	AfterStart bool
	// Setup are commands to run before it.
	Setup string
	// Exit is its expected exit code.
	Exit int
	// Prints are texts that its output must contain.
	Prints []string
	// Again runs the block until its output contains Prints.
	Again bool
}

// The comments of the marked part of docs/install.md may also be above a block.
var ignored = regexp.MustCompile(`^install: (begin|end)$`)

// Fence is any code block, with the comments right above it.
type Fence struct {
	Line     int    // of the fence, from 1
	Heading  string // above it, without its number signs
	Language string
	Code     string // without the indentation of the list that it may be in
	Comments []string
}

// Fences returns all code blocks of a page.
func Fences(text string) []Fence {
	var (
		fences   []Fence
		heading  string
		comments []string
		lines    = strings.Split(text, "\n")
	)
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		switch {
		case line == "":
		case strings.HasPrefix(line, "<!--"):
			end := closing(lines, i, func(l string) bool { return strings.HasSuffix(l, "-->") })
			whole := strings.TrimSpace(strings.Join(lines[i:min(end+1, len(lines))], "\n"))
			comments = append(comments, strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(whole, "<!--"), "-->")))
			i = end
		case strings.HasPrefix(line, "```"):
			end := closing(lines, i+1, func(l string) bool { return l == "```" })
			f := Fence{Line: i + 1, Heading: heading, Language: strings.TrimPrefix(line, "```"), Comments: comments}
			indent, _, _ := strings.Cut(lines[i], "`")
			for _, code := range lines[i+1 : min(end, len(lines))] {
				f.Code += strings.TrimPrefix(code, indent) + "\n"
			}
			fences, comments, i = append(fences, f), nil, end
		case strings.HasPrefix(line, "#"):
			heading, comments = strings.TrimLeft(line, "# "), nil
		default:
			comments = nil
		}
	}
	return fences
}

// Blocks returns the sh blocks of a page, and the yaml blocks that are applied.
func Blocks(text string) ([]Block, error) {
	var blocks []Block
	for _, f := range Fences(text) {
		b := Block{Line: f.Line, Heading: f.Heading, Language: f.Language, Code: f.Code}
		kept, err := b.take(f.Comments)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", b.Line, err)
		}
		if kept {
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

// Marked returns the code of the blocks below a comment of the form "kind: name", by name.
func Marked(text, kind string) map[string]string {
	marked := map[string]string{}
	for _, f := range Fences(text) {
		for _, comment := range f.Comments {
			if name, is := strings.CutPrefix(comment, kind+": "); is {
				marked[name] = f.Code
			}
		}
	}
	return marked
}

// OfLanguage returns the code of the blocks of a language.
func OfLanguage(text, language string) []string {
	var out []string
	for _, f := range Fences(text) {
		if f.Language == language {
			out = append(out, f.Code)
		}
	}
	return out
}

// closing returns the index of the first line at or after from that ends accepts.
func closing(lines []string, from int, ends func(string) bool) int {
	for i := from; i < len(lines); i++ {
		if ends(strings.TrimSpace(lines[i])) {
			return i
		}
	}
	return len(lines)
}

// take applies the comments above a block, and reports whether tests consider the block at
// all.
func (b *Block) take(comments []string) (kept bool, err error) {
	kept = b.Language == "sh"
	for _, comment := range comments {
		switch {
		case ignored.MatchString(comment):
		case comment == "applied" && b.Language == "yaml":
			kept = true
		case comment == "after docs/install.md":
			b.AfterStart = true
		case strings.HasPrefix(comment, "exits with "):
			if b.Exit, err = strconv.Atoi(strings.TrimPrefix(comment, "exits with ")); err != nil {
				return false, fmt.Errorf("comment %q: %w", comment, err)
			}
		case !b.set(comment):
			return false, fmt.Errorf("comment %q above a block of %s says nothing that test/cluster/page knows", comment, b.Language)
		}
	}
	if b.NotRun != "" && len(comments) > 1 {
		return false, fmt.Errorf("a block that is not run needs no other comment: %q", comments)
	}
	return kept, nil
}

// set applies a comment of the form "name: value", and reports whether it is one.
func (b *Block) set(comment string) bool {
	name, value, _ := strings.Cut(comment, ":")
	if value = strings.TrimSpace(value); value == "" {
		return false
	}
	switch name {
	case "not run":
		b.NotRun = value
	case "setup":
		b.Setup += value + "\n"
	case "prints":
		b.Prints = append(b.Prints, value)
	case "until it prints":
		b.Prints, b.Again = append(b.Prints, value), true
	default:
		return false
	}
	return true
}
