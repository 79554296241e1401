package docs

import (
	"regexp"
	"strings"
	"testing"
)

// plain are words that the pages, the chart and the examples do without, and what
// they say in their place. The glossary of docs/concepts.md has the terms.
var plain = map[string]string{
	`nobody|somebody|anybody`:                  "name the actor",
	`(?:is|are|was|were|be|been|being) told`:   "assigned, reported, logged, configured or listed",
	`on end`:                                   "without interruption",
	`rested|resting|block rests|blocks rest`:   "cools down",
	`gives? up|given up|hands? out|handed out`: "returns, frees, assigns",
	`reckon|reckons|reckoned`:                  "compute",
	`mended`:                                   "fixed",
}

func TestPlainWords(t *testing.T) {
	pages := pagesOfOurs(t)
	for _, path := range files(t, func(name string) bool {
		return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".tpl") || name == "NOTES.txt"
	}) {
		if strings.HasPrefix(path, "examples/") || strings.HasPrefix(path, "charts/") {
			pages = append(pages, path)
		}
	}
	if len(pages) < 80 {
		t.Fatalf("%d pages found: there are more", len(pages))
	}
	for words, better := range plain {
		word := regexp.MustCompile(`(?i)\b(?:` + words + `)\b`)
		for _, path := range pages {
			if path == "docs/configuration.md" || path == "docs/check.md" {
				continue // mostly what --help says
			}
			for n, line := range strings.Split(read(t, path), "\n") {
				if m := word.FindString(line); m != "" {
					t.Errorf("%s:%d: %q; rather: %s", path, n+1, m, better)
				}
			}
		}
	}
}
