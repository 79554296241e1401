//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
)

// migrationPages are the pages with blocks for cmdBlock.
func migrationPages() []string { return []string{"docs/migration.md", "docs/modes.md"} }

var (
	// bareFile is a file of the page or of the reader, which is in the bed's folder.
	bareFile = regexp.MustCompile(`(-f|--what-if|>) ([a-z-]+\.yaml)\b`)
	// agentDeleted is a command after which the next one waits until the node's agent is Ready again.
	agentDeleted = regexp.MustCompile(`(?m)^kubectl (-n kube-system) delete pod (-l k8s-app=cilium --field-selector \S+)$`)
)

// movesOf returns the blocks of commands below comments of the form <!-- move: NAME --> in the page, as
// this machine runs them. Files below <!-- file: NAME --> are in dir.
func movesOf(text, dir string) map[string]string {
	blocks := page.Marked(text, "move")
	for name, code := range blocks {
		code = agentDeleted.ReplaceAllString(code, "$0\nuntil kubectl $1 wait pod $2 --for=condition=Ready --timeout=5m; do sleep 1; done")
		blocks[name] = bareFile.ReplaceAllString(code, "$1 "+dir+"/$2")
	}
	return blocks
}

// cmdBlock runs a block of the page, for NODE or BLOCK, which must exit with this code.
func cmdBlock(ctx context.Context, e *env, a *script.Arguments) error {
	words := strings.NewReplacer("NODE", a.Value("NODE", "NODE"), "BLOCK", a.Value("BLOCK", "BLOCK"))
	exit, err := strconv.Atoi(a.Value("exits", "0"))
	text := ""
	for _, path := range migrationPages() {
		content, readErr := os.ReadFile(filepath.Join(e.options.repository, path))
		err = errors.Join(err, readErr)
		text += string(content)
	}
	if err != nil {
		return err
	}
	for name, content := range page.Marked(text, "file") {
		if err := os.WriteFile(filepath.Join(e.options.dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	name := a.Word()
	code, err := e.forceAll(words.Replace(movesOf(text, e.options.dir)[name]))
	if err == nil && code == "" {
		err = fmt.Errorf("%s have no commands below <!-- move: %s -->", migrationPages(), name)
	}
	if err != nil {
		return err
	}
	return e.runOnce(ctx, code, page.Block{Exit: exit})
}

// untilTimeout is the time for a block to print its page's promise.
const untilTimeout = 4 * time.Minute

// cmdPage runs the blocks of a page, or of its sections with these headings, in their order, as in one
// shell. A block that fails becomes a row of the table, and the next one still runs.
func cmdPage(ctx context.Context, e *env, a *script.Arguments) error {
	path := a.Word()
	text, err := os.ReadFile(filepath.Join(e.options.repository, path))
	if err != nil {
		return err
	}
	blocks, err := page.Blocks(string(text))
	if err != nil {
		return fmt.Errorf("%s, %w", path, err)
	}
	for _, heading := range a.Rest {
		if !slices.ContainsFunc(blocks, func(b page.Block) bool { return b.Heading == heading }) {
			return fmt.Errorf("%s has no commands below the heading %q", path, heading)
		}
	}
	for _, b := range blocks {
		if len(a.Rest) > 0 && !slices.Contains(a.Rest, b.Heading) {
			continue
		}
		where := fmt.Sprintf("%s:%d", path, b.Line)
		if b.NotRun != "" {
			e.Note(where+" is not run", "%s", b.NotRun)
			continue
		}
		if b.AfterStart {
			if err := e.install(ctx); err != nil {
				return err
			}
		}
		began := time.Now()
		err := e.runBlock(ctx, b)
		if err != nil {
			e.say("%s: %v", where, err)
		}
		e.Check(err == nil, where+" "+title(b), "%s", seconds(began))
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

func (e *env) runBlock(ctx context.Context, b page.Block) error {
	code := b.Code
	if b.Language == "yaml" {
		code = "kubectl apply -f - <<'EOF'\n" + b.Code + "EOF\n"
	}
	code, err := e.forceAll(page.Named(code))
	if err != nil {
		return err
	}
	setup, err := e.forceAll(page.Named(b.Setup))
	if err != nil {
		return err
	}
	if _, err := e.session(ctx, setup); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	if !b.Again {
		return e.runOnce(ctx, code, b)
	}
	return kube.Await(ctx, untilTimeout, fmt.Sprintf("prints %q", b.Prints), func(ctx context.Context) error { return e.runOnce(ctx, code, b) })
}

// runOnce runs code, and checks exit code and output against the page.
func (e *env) runOnce(ctx context.Context, code string, b page.Block) error {
	out, err := e.session(ctx, code)
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
// from make that another make runs it, and lets make image find what Go has built already.
func (e *env) session(ctx context.Context, code string) (string, error) {
	if code == "" {
		return "", nil
	}
	exported := filepath.Join(e.options.dir, "exported")
	goEnv := "=$(HOME='" + os.Getenv("HOME") + "' go env "
	return e.shell(ctx, "unset MAKEFLAGS MAKELEVEL MFLAGS\nexport GOPATH"+goEnv+"GOPATH) GOCACHE"+goEnv+"GOCACHE)\n[[ ! -e "+exported+" ]] || source "+exported+
		"\ntrap 'export -p >"+exported+"' EXIT\n"+code)
}

// forceAll changes the lines that this machine cannot run unchanged.
func (e *env) forceAll(code string) (string, error) {
	var forced strings.Builder
	for line := range strings.Lines(continuation.ReplaceAllString(code, " ")) {
		line, err := e.force(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return "", err
		}
		forced.WriteString(line + "\n")
	}
	return strings.TrimLeft(forced.String(), "\n"), nil
}
