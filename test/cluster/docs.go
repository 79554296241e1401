//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
)

// untilTimeout is the time for a block to print its page's promise.
const untilTimeout = 4 * time.Minute

// docsScenarios run the code blocks of one page each: docs-readme, docs-install...
func docsScenarios() []scenario {
	var out []scenario
	for _, path := range page.Pages() {
		name := "docs-" + strings.ToLower(strings.TrimSuffix(filepath.Base(path), ".md"))
		out = append(out, scenario{name: name, fresh: true, run: func(ctx context.Context, t *trial) error {
			return t.runPage(ctx, path)
		}})
	}
	return out
}

// runPage runs the blocks of a page in their order, as in one shell. A block that fails
// becomes a row of the table, and the next one still runs.
func (t *trial) runPage(ctx context.Context, path string) error {
	text, err := os.ReadFile(filepath.Join(t.options.repository, path))
	if err != nil {
		return err
	}
	blocks, err := page.Blocks(string(text))
	if err != nil {
		return fmt.Errorf("%s, %w", path, err)
	}
	for _, b := range blocks {
		where := fmt.Sprintf("%s:%d", path, b.Line)
		if b.NotRun != "" {
			t.note(where+" is not run", b.NotRun)
			continue
		}
		if b.AfterStart {
			if err := t.installAll(ctx); err != nil {
				return err
			}
		}
		began := time.Now()
		err := t.runBlock(ctx, b)
		if err != nil {
			t.say("%s: %v", where, err)
		}
		t.check(where+" "+title(b), seconds(began), err == nil)
	}
	return nil
}

// title returns the beginning of a block's code.
func title(b page.Block) string {
	for line := range strings.Lines(b.Code) {
		if line, _, _ = strings.Cut(strings.TrimSpace(line), " #"); line != "" {
			return line[:min(len(line), 50)]
		}
	}
	return ""
}

func (t *trial) runBlock(ctx context.Context, b page.Block) error {
	code := b.Code
	if b.Language == "yaml" {
		code = "kubectl apply -f - <<'EOF'\n" + b.Code + "EOF\n"
	}
	code, err := t.forceAll(page.Named(code))
	if err != nil {
		return err
	}
	setup, err := t.forceAll(page.Named(b.Setup))
	if err != nil {
		return err
	}
	if _, err := t.session(ctx, setup); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	if !b.Again {
		return t.runOnce(ctx, code, b)
	}
	var last error
	err = kube.Await(ctx, untilTimeout, fmt.Sprintf("prints %q", b.Prints), func(ctx context.Context) (bool, string) {
		last = t.runOnce(ctx, code, b)
		return last == nil, fmt.Sprint(last)
	})
	return err
}

// runOnce runs code, and checks exit code and output against the page.
func (t *trial) runOnce(ctx context.Context, code string, b page.Block) error {
	out, err := t.session(ctx, code)
	got := 0
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		return err
	}
	if got != b.Exit {
		return fmt.Errorf("exit code %d, want %d: %s", got, b.Exit, lastLines(out, 10))
	}
	for _, text := range b.Prints {
		if !strings.Contains(out, text) {
			return fmt.Errorf("does not print %q: %s", text, lastLines(out, 10))
		}
	}
	return nil
}

// session runs code with the environment exported by earlier code on the cluster. It hides
// from make that another make runs it.
func (t *trial) session(ctx context.Context, code string) (string, error) {
	if code == "" {
		return "", nil
	}
	exported := filepath.Join(t.options.dir, "exported")
	return t.shell(ctx, "unset MAKEFLAGS MAKELEVEL MFLAGS\n[[ ! -e "+exported+" ]] || source "+exported+
		"\ntrap 'export -p >"+exported+"' EXIT\n"+code)
}

// forceAll changes the lines that this machine cannot run unchanged.
func (t *trial) forceAll(code string) (string, error) {
	var forced strings.Builder
	for line := range strings.Lines(continuation.ReplaceAllString(code, " ")) {
		line, err := t.force(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return "", err
		}
		forced.WriteString(line + "\n")
	}
	return strings.TrimLeft(forced.String(), "\n"), nil
}
