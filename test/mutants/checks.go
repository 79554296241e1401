package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// check is one way to catch a fault.
type check struct {
	name string
	// of returns the package with the program that the check runs on a mutant, or "" if the check
	// does not apply to it.
	of func(m mutant) string
	// catch runs the program with a mutant, or without one if it is "". It returns the test or
	// rule that found a fault, or "".
	catch func(ctx context.Context, pkg, program, mutant string) (string, error)
}

// Time limits of one check of one mutant, as a fault may make the code loop forever.
const (
	hang     = 3 * time.Minute
	longHang = 20 * time.Minute // of the tests on a real API server, and of many seeds
)

func checksOf(o options) ([]check, error) {
	only := func(pkg string) func(mutant) string { return func(mutant) string { return pkg } }
	known := map[string]check{
		"unit":          {of: mutant.pkg, catch: tests(hang)},
		"controller":    {of: byControllers, catch: tests(hang)},
		"scripts":       {of: byScripts, catch: tests(longHang, "-test.run", "^TestScripts$")},
		"sim":           {of: only("./test/sim"), catch: simulate()},
		"mapping":       {of: only("./test/sim"), catch: simulate("-model-alone")},
		"mapping-whole": {of: only("./test/sim"), catch: simulate("-model-alone", "-mode=multi-pool")},
		"integration":   {of: only("./test/integration"), catch: tests(longHang)},
	}
	var checks []check
	for _, name := range o.checks {
		c, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("-checks: no check is called %q", name)
		}
		c.name = name
		checks = append(checks, c)
	}
	return checks, nil
}

// byControllers excludes the packages that the check unit has covered.
func byControllers(m mutant) string {
	const pkg = "./pkg/controller/node"
	if m.pkg() == pkg {
		return ""
	}
	return pkg
}

// byScripts applies to the kubectl plugin only.
func byScripts(m mutant) string {
	if strings.HasPrefix(m.pkg(), "./pkg/plugin/") {
		return "./test/plugin"
	}
	return ""
}

// builder builds each program once, with all mutants in it.
type builder struct{ root, dir, overlay string }

func (b builder) program(ctx context.Context, pkg string) (string, error) {
	program := filepath.Join(b.dir, strings.ReplaceAll(pkg[2:], "/", "-")+".test")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	args := []string{"test", "-c", "-vet=off"}
	if pkg == "./test/sim" {
		args = []string{"build"}
	}
	args = append(args, "-overlay", b.overlay, "-ldflags=-s -w", "-o", program, pkg)
	out, failed, err := command(ctx, b.root, "", "go", args...)
	if failed {
		err = fmt.Errorf("building %s with the mutants in it:\n%s", pkg, out)
	}
	return program, err
}

// tests runs tests of a package until one fails.
func tests(limit time.Duration, args ...string) func(ctx context.Context, pkg, program, mutant string) (string, error) {
	return func(ctx context.Context, pkg, program, mutant string) (string, error) {
		all := append([]string{"-test.failfast", "-test.timeout", limit.String()}, args...)
		out, failed, err := command(ctx, pkg, mutant, program, all...)
		if err != nil || !failed {
			return "", err
		}
		return failedTest(out)
	}
}

// command runs a program in a folder, with a mutant, and reports whether it failed.
func command(ctx context.Context, dir, mutant, name string, args ...string) (out []byte, failed bool, err error) {
	var buf bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), planted+"="+mutant)
	if filepath.IsAbs(name) { // its leftovers end with the program
		cmd.Env = append(cmd.Env, "TMPDIR="+filepath.Dir(name))
	}
	cmd.Stdout, cmd.Stderr = &buf, &buf
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, false, ctx.Err()
	case errors.As(err, &exit):
		return buf.Bytes(), true, nil
	case err != nil:
		return nil, false, fmt.Errorf("running %s: %w", name, err)
	}
	return buf.Bytes(), false, nil
}

// failedTest returns the name of the failed test in the output of go test.
func failedTest(out []byte) (string, error) {
	if m := regexp.MustCompile(`(?m)^\s*panic: test timed out after .*\n\s*running tests:\n\s*(\S+)`).FindSubmatch(out); m != nil {
		return string(m[1]) + " hangs", nil
	}
	if m := regexp.MustCompile(`(?m)^\s*--- FAIL: (\w+)`).FindSubmatch(out); m != nil {
		return string(m[1]), nil
	}
	if bytes.Contains(out, []byte("panic: ")) || bytes.Contains(out, []byte("fatal error: ")) {
		return "a panic", nil
	}
	return "", fmt.Errorf("the tests failed, and none of them did:\n%s", out)
}

// simulate plays seeds of the simulator, with additional arguments, until one breaks a rule. It
// plays one at a time, so that the reported seed is the first.
func simulate(more ...string) func(ctx context.Context, pkg, program, mutant string) (string, error) {
	return func(ctx context.Context, _, program, mutant string) (string, error) {
		bounded, cancel := context.WithTimeout(ctx, longHang)
		defer cancel()
		args := []string{"-seeds=1000", "-steps=300", "-shrink=0s", "-workers=1"}
		out, failed, err := command(bounded, "", mutant, program, append(args, more...)...)
		switch {
		case bounded.Err() != nil && ctx.Err() == nil:
			return "hangs", nil
		case err != nil || !failed:
			return "", err
		}
		return brokenRule(out)
	}
}

// brokenRule returns the rule that broke and its seed, from the simulator's output.
func brokenRule(out []byte) (string, error) {
	if m := regexp.MustCompile(`(?m)^FAILED seed (\d+).*\n\s*(rule \d+|[^\n:]{1,40})`).FindSubmatch(out); m != nil {
		return fmt.Sprintf("%s at seed %s", m[2], m[1]), nil
	}
	if m := regexp.MustCompile(`(?m)^FAILED: (\d+ pods were not restored)`).FindSubmatch(out); m != nil {
		return string(m[1]), nil
	}
	if bytes.Contains(out, []byte("FAILED: too little")) {
		return "nothing happens", nil
	}
	return "", fmt.Errorf("the simulator failed, and no rule did:\n%s", out)
}
