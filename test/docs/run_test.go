package docs

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
)

// placeholder matches a word that readers replace by a name of their own.
var placeholder = regexp.MustCompile(`(?:^|[\s/=])([A-Z]{3,}|…|\.\.\.)(?:$|[\s/])`)

// make cluster RUN=docs can run each block of sh on these pages, or the page says
// why it is not run.
func TestBlocksCanRun(t *testing.T) {
	for _, path := range page.Pages() {
		text := read(t, path)
		blocks, err := page.Blocks(text)
		if err != nil {
			t.Errorf("%s, %v", path, err)
			continue
		}
		seen := 0
		for _, b := range blocks {
			if b.Language == "sh" {
				seen++
			}
			if b.Language != "sh" || b.NotRun != "" {
				continue
			}
			for what, code := range map[string]string{"block": b.Code, "setup": b.Setup} {
				if problem := cannotRun(t, code); problem != "" {
					t.Errorf("%s:%d: %s: %s", path, b.Line, what, problem)
				}
			}
		}
		// Counts the blocks independently, so that none gets lost above.
		if want := strings.Count(text, "```sh\n"); seen != want || seen == 0 {
			t.Errorf("%s: %d blocks of sh were read, it has %d", path, seen, want)
		}
	}
}

// cannotRun returns why a shell cannot run code, or "".
func cannotRun(t *testing.T, code string) string {
	t.Helper()
	code = page.Named(code)
	for line := range strings.Lines(code) {
		line, _, _ = strings.Cut(line, " #")
		if m := placeholder.FindStringSubmatch(line); m != nil {
			return "stands of test/cluster/page have no name for " + m[1]
		}
	}
	check := exec.CommandContext(t.Context(), "bash", "-n")
	check.Stdin = strings.NewReader(code)
	if out, err := check.CombinedOutput(); err != nil {
		return string(out)
	}
	return ""
}
