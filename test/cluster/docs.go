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
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/budgets"
)

const migrationPage = "docs/migration.md"

// markedPage is a page with several procedures: the comments <!-- move: NAME --> for commands and
// <!-- file: NAME --> for a file that they use name the blocks right below.
type markedPage struct {
	*bed
	blocks map[string]string
	// dir is the folder of the page's files, and of the reader's own.
	dir string
}

var bareFile = regexp.MustCompile(`-f ([a-z-]+\.yaml)\b`)

// readMarked reads the page and writes its files.
func (b *bed) readMarked() (*markedPage, error) {
	text, err := os.ReadFile(filepath.Join(b.options.repository, migrationPage))
	if err != nil {
		return nil, err
	}
	p := &markedPage{bed: b, dir: b.options.dir, blocks: page.Marked(string(text), "move")}
	for name, content := range page.Marked(string(text), "file") {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// commands returns the commands of a block, with words replaced as readers do.
func (p *markedPage) commands(block string, replace ...string) ([]string, error) {
	if p.blocks[block] == "" {
		return nil, fmt.Errorf("%s has no commands below <!-- move: %s -->", migrationPage, block)
	}
	var commands []string
	for _, line := range commandLines(strings.NewReplacer(replace...).Replace(p.blocks[block])) {
		line, err := p.force(line)
		if err != nil {
			return nil, err
		}
		commands = append(commands, bareFile.ReplaceAllString(line, "-f "+p.dir+"/$1"))
	}
	return commands, nil
}

// cmdBlock runs a block of the page, for NODE or BLOCK; the last command must exit with this code.
// After a command that deletes an agent the next one waits until it is Ready.
func cmdBlock(ctx context.Context, e *env, a *script.Arguments) (err error) {
	if e.page == nil {
		if e.page, err = e.readMarked(); err != nil {
			return err
		}
	}
	node, exits := a.Value("NODE", "NODE"), a.Value("exits", "0")
	lines, err := e.page.commands(a.Word(), "NODE", node, "BLOCK", a.Value("BLOCK", "BLOCK"))
	if err != nil {
		return err
	}
	for i, line := range lines {
		e.say("$ %s", line)
		_, err := e.shell(ctx, line)
		if exit := new(exec.ExitError); i == len(lines)-1 && errors.As(err, &exit) && fmt.Sprint(exit.ExitCode()) == exits {
			return nil
		}
		if err == nil && strings.Contains(line, "delete pod") {
			err = e.awaitAgent(ctx, node)
		}
		if err != nil {
			return err
		}
	}
	if exits != "0" {
		return fmt.Errorf("exit code 0, not %s", exits)
	}
	return nil
}

// awaitAgent waits until a node's agent is Ready again after its pod was deleted.
func (b *bed) awaitAgent(ctx context.Context, node string) error {
	return kube.Await(ctx, readyTimeout, "the agent of "+node+" is Ready", func(ctx context.Context) error {
		pods, err := b.pods(ctx, "--namespace=kube-system", "--selector=k8s-app=cilium", "--field-selector=spec.nodeName="+node)
		if err == nil && (len(pods) != 1 || !budgets.HasCondition(&pods[0], corev1.PodReady)) {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
}

// untilTimeout is the time for a block to print its page's promise.
const untilTimeout = 4 * time.Minute

// cmdPage runs the blocks of a page in their order, as in one shell. A block that fails
// becomes a row of the table, and the next one still runs.
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
	for _, b := range blocks {
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
