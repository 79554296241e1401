// Package docs compares the documentation with the code: metrics, events, flags, dependencies
// and links.
//
// Only this suite finds pages that no longer describe the code.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const root = "../.."

// generated folders contain no documentation of ours.
var generated = []string{".git", ".cache", ".run", "dist"}

// files returns the repository's files with matching names, relative to its root.
func files(t *testing.T, match func(name string) bool) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(generated, d.Name()):
			return filepath.SkipDir
		case !d.IsDir() && match(d.Name()):
			rel, err := filepath.Rel(root, path)
			found = append(found, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	harness.Must(t, err)
	return found
}

func isMarkdown(name string) bool { return strings.HasSuffix(name, ".md") }

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	harness.Must(t, err)
	return string(content)
}

// prose returns a page without its code blocks.
func prose(page string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(page, "")
}

func whole(page string) string { return page }

// joined returns a page with each command on one line.
func joined(page string) string { return strings.ReplaceAll(page, "\\\n", " ") }

// matches calls f for each match of a pattern on each page, or in the part of the page that of
// returns. Fewer matches than atLeast fail the test.
func matches(t *testing.T, pages []string, of func(page string) string, pattern string, atLeast int, f func(page string, m []string)) {
	t.Helper()
	seen, compiled := 0, regexp.MustCompile(pattern)
	for _, page := range pages {
		for _, m := range compiled.FindAllStringSubmatch(of(read(t, page)), -1) {
			seen++
			f(page, m)
		}
	}
	if seen < atLeast {
		t.Errorf("%d matches of %s found: the pages have more", seen, pattern)
	}
}

// column returns the codes in a column of the table under a heading.
func column(page, heading string, n int) []string {
	var names []string
	for _, row := range table(page, heading) {
		names = append(names, code(row[n]))
	}
	return names
}

// table returns the cells of the rows of the tables under a heading, "" being the whole page,
// without their header rows.
func table(page, heading string) [][]string {
	var rows [][]string
	inside, header := heading == "", true
	for line := range strings.Lines(prose(page)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#") && heading != "":
			inside = strings.TrimSpace(strings.TrimLeft(line, "#")) == heading
		case !strings.HasPrefix(line, "|"):
			header = true
		case strings.HasPrefix(line, "| ---"):
			header = false
		case inside && !header:
			rows = append(rows, cells(line))
		}
	}
	return rows
}

// cells splits a row at the bars that are not escaped by a backslash.
func cells(row string) []string {
	const bar = "\x00"
	row = strings.ReplaceAll(strings.Trim(row, "| "), `\|`, bar)
	out := strings.Split(row, "|")
	for i := range out {
		out[i] = strings.TrimSpace(strings.ReplaceAll(out[i], bar, "|"))
	}
	return out
}

// code returns a cell's text without code style.
func code(cell string) string { return strings.Trim(cell, "`") }

// sameSet reports what only one of two lists has.
func sameSet(t *testing.T, what string, documented, real []string) {
	t.Helper()
	for _, name := range documented {
		if !slices.Contains(real, name) {
			t.Errorf("%s: %s is documented and does not exist", what, name)
		}
	}
	for _, name := range real {
		if !slices.Contains(documented, name) {
			t.Errorf("%s: %s is not documented", what, name)
		}
	}
	for i, name := range documented {
		if slices.Contains(documented[:i], name) {
			t.Errorf("%s: %s is documented twice", what, name)
		}
	}
}
