package docs

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

var codeSpan = regexp.MustCompile("`([^`\n]+)`")

// sourcePath matches a file or folder of this repository or of Cilium's.
const sourcePath = `(?m)(?:^|[\s(,=])((?:pkg|test|cmd|charts|examples|hack|docs|daemon|operator|plugins|install|Documentation)/[\w./-]+)`

// spans returns the texts in code style of a page, and the lines of its commands and of its fences
// that name no language, such as a list of packages.
func spans(page string) []string {
	var found []string
	for _, m := range codeSpan.FindAllStringSubmatch(prose(page), -1) {
		found = append(found, m[1])
	}
	for _, f := range fences(page) {
		if f.language == "" || f.language == "sh" {
			found = append(found, strings.Split(f.code, "\n")...)
		}
	}
	return found
}

// pagesOfOurs returns the pages written by hand, without the changelog.
func pagesOfOurs(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(files(t, isMarkdown), func(page string) bool {
		return page == "CHANGELOG.md" || page == "docs/reference/api.md" || strings.HasPrefix(page, "docs/kubectl/kubectl_")
	})
}

// ownNames returns pagesOfOurs without those with other projects' names.
func ownNames(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(pagesOfOurs(t), func(page string) bool { return page == "docs/comparison.md" || page == "docs/import.md" })
}

// ciliumModule returns the folder of the version of Cilium that go.mod names.
func ciliumModule(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/cilium").Output()
	harness.Must(t, err)
	return strings.TrimSpace(string(out))
}

// Files and folders that pages name exist here, or in the version of Cilium that
// go.mod names.
func TestPathsInPages(t *testing.T) {
	cilium := ciliumModule(t)
	spanLines := func(page string) string { return strings.Join(spans(page), "\n") }
	matches(t, pagesOfOurs(t), spanLines, sourcePath, 100, func(page string, m []string) {
		name := strings.TrimRight(m[1], ".")
		_, here := os.Stat(filepath.Join(root, name))
		_, there := os.Stat(filepath.Join(cilium, name))
		if here != nil && there != nil {
			t.Errorf("%s: neither this repository nor Cilium has %s", page, name)
		}
	})
}

// othersWords are named in our pages and belong to Cilium, Calico, Argo CD, Flux, Karpenter, or to a
// field that was decided against.
const othersWords = `directRoutingSkipUnreachable CanAdvertisePodCIDR setDefaultPrefix rollOutCiliumPods StartAllocator nodeUpdate startIPPoolAllocator
ipAddrs dependsOn selfHeal RetryOnFailure nodeRef NodeOverlay ResourceNotRegistered NodeNotReady`

// The sources contain the identifiers that pages name: tests, symbols, functions, fields, reasons. A
// name that ends in … stands for all names with that prefix.
func TestWordsInPages(t *testing.T) {
	isWord := func(r rune) bool {
		return r == '_' || r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r))
	}
	words := map[string]bool{}
	for _, path := range files(t, func(name string) bool { return !isMarkdown(name) }) {
		if path == "test/docs/names_test.go" {
			continue
		}
		switch filepath.Ext(path) {
		case ".go", ".yaml", ".tpl", ".txt", ".txtar", ".json":
			for _, word := range strings.FieldsFunc(read(t, path), func(r rune) bool { return !isWord(r) }) {
				words[word] = true
			}
		}
	}
	for word := range strings.FieldsSeq(othersWords) {
		words[word] = true
	}
	known := func(word string) bool {
		prefix, open := strings.CutSuffix(word, "…")
		return words[prefix] || open && slices.ContainsFunc(slices.Collect(maps.Keys(words)), func(w string) bool { return strings.HasPrefix(w, prefix) })
	}
	matches(t, ownNames(t), prose, "`((?:[a-z]+\\.)?[A-Z]\\w*(?:\\.\\w+)+|[A-Za-z]+[a-z][A-Z]\\w*…?)`", 300, func(page string, m []string) {
		for word := range strings.SplitSeq(m[1], ".") {
			if !known(word) {
				t.Errorf("%s: `%s`: %s is in no source", page, m[1], word)
			}
		}
	})
}

// Events and conditions that pages name are on the page that lists them, which
// TestEventsPage compares with the code.
func TestEventsAndConditionsInPages(t *testing.T) {
	const list = "docs/reference/events.md"
	known := map[string]bool{}
	for _, row := range table(read(t, list), "") {
		known[code(row[0])] = true
	}
	pages := slices.DeleteFunc(pagesOfOurs(t), func(page string) bool { return page == list })
	matches(t, pages, prose, "(?i)\\b(?:event|condition)s? `([A-Z]\\w+)`", 15, func(page string, m []string) {
		if !known[m[1]] {
			t.Errorf("%s: %s lists no %s", page, list, m[0])
		}
	})
}
