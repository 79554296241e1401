package docs

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.+?)\s*$`)
	explicit = regexp.MustCompile(`(?:id|name)="([^"]+)"`)
	notSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// repository is the address of the repository's files on the main branch.
const repository = "https://github.com/cilium-pool/cilium-pool-operator/blob/main/"

// anchors returns the link targets of a page, in GitHub's form.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(prose(page), -1) {
		text := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		slug := strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		for n, unique := 1, slug; ; n++ {
			if !found[unique] {
				found[unique] = true
				break
			}
			unique = fmt.Sprintf("%s-%d", slug, n)
		}
	}
	for _, m := range explicit.FindAllStringSubmatch(page, -1) {
		found[m[1]] = true
	}
	return found
}

// Links within the repository lead to existing files and headings.
func TestLinks(t *testing.T) {
	known := map[string]map[string]bool{} // anchors by page
	for _, from := range files(t, isMarkdown) {
		for _, m := range link.FindAllStringSubmatch(prose(read(t, from)), -1) {
			target, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %v", from, err)
				continue
			}
			to, published := strings.CutPrefix(m[1], repository)
			to, _, _ = strings.Cut(to, "#")
			switch {
			case published:
			case target.Scheme != "":
				continue
			case target.Path == "":
				to = from
			case strings.HasPrefix(from, "charts/"):
				t.Errorf("%s: %s leads nowhere on Artifact Hub: use %s", from, m[1], repository)
				continue
			default:
				to = path.Join(path.Dir(from), target.Path)
			}
			if strings.HasPrefix(to, "..") || path.IsAbs(to) {
				t.Errorf("%s: %s leads out of the repository", from, m[1])
				continue
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: %s leads nowhere", from, m[1])
				continue
			}
			if target.Fragment == "" {
				continue
			}
			if known[to] == nil && isMarkdown(to) {
				known[to] = anchors(read(t, to))
			}
			if !known[to][target.Fragment] {
				t.Errorf("%s: %s has no heading #%s", from, to, target.Fragment)
			}
		}
	}
}

// Every page can be reached from the README.
func TestNoPageIsLost(t *testing.T) {
	reached := map[string]bool{}
	next := []string{"README.md"}
	for len(next) > 0 {
		from := next[0]
		next = next[1:]
		if reached[from] {
			continue
		}
		reached[from] = true
		for _, m := range link.FindAllStringSubmatch(prose(read(t, from)), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			to := path.Join(path.Dir(from), target)
			if strings.HasSuffix(to, "/") || !isMarkdown(to) || strings.Contains(target, ":") {
				continue
			}
			next = append(next, to)
		}
	}
	for _, page := range files(t, isMarkdown) {
		if !reached[page] {
			t.Errorf("no link leads to %s", page)
		}
	}
}

// Pages, scripts and examples work on any machine: they name no folder of a
// particular user.
func TestNoPathOfOneMachine(t *testing.T) {
	text := func(name string) bool {
		return slices.Contains([]string{".md", ".yaml", ".tpl", ".sh", ".mk", ".mod"}, filepath.Ext(name)) || name == "Makefile" || name == "Dockerfile"
	}
	matches(t, files(t, text), whole, "(?m)(?:^|[\\s\"'(`=:])((?:/(?:home|root|Users|tmp|mnt|opt|work|workspace)|~)/[\\w.-]+\\S*)", 0, func(page string, m []string) {
		if !strings.HasPrefix(m[1], "/opt/cni/bin") { // every node has it
			t.Errorf("%s names %s", page, m[1])
		}
	})
}

// The make targets that pages name exist.
func TestMakeTargets(t *testing.T) {
	makefile := makefiles(t)
	matches(t, files(t, isMarkdown), whole, "(?m)(?:^|`)make ([a-z][a-z0-9/-]*)", 20, func(page string, m []string) {
		if !strings.Contains(makefile, "\n"+m[1]+":") {
			t.Errorf("%s: the Makefile has no target %s", page, m[1])
		}
	})
}
