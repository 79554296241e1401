//go:build linux

// Command e2e runs the operator with real Cilium on this machine, scenario by
// scenario, each in a bed of its own, and prints one table of what was seen.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	exitFailed  = 1
	exitUsage   = 2
	exitSkipped = 4

	// scenarioTimeout bounds one scenario, whatever it waits for.
	scenarioTimeout = 12 * time.Minute
)

type options struct {
	run       string
	binDir    string
	ciliumDir string
	helm      string
	examples  string
	logs      string
	verbose   bool
	inside    string // the one scenario that a process in the sandbox runs
}

func main() {
	var o options
	flag.StringVar(&o.run, "run", "ci", "scenarios to run, separated by commas; ci: those of every change; all: all")
	flag.StringVar(&o.binDir, "bin", ".cache/bin", "folder of etcd, kube-apiserver and cilium-pool-operator")
	flag.StringVar(&o.ciliumDir, "cilium", ".cache/bin/cilium-1.20.1", "folder of Cilium's programs, its bpf folder and its chart")
	flag.StringVar(&o.helm, "helm", "helm", "Helm, which renders the agents' configuration from Cilium's chart")
	flag.StringVar(&o.examples, "examples", "examples", "folder of the values that users are given, and the agents run with")
	flag.StringVar(&o.logs, "logs", ".run/e2e", "folder of the logs")
	flag.BoolVar(&o.verbose, "v", true, "tell each step as it happens")
	flag.StringVar(&o.inside, "inside", "", "for its own use")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, o)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, o options) int {
	if found, err := exec.LookPath(o.helm); err == nil {
		o.helm = found
	}
	for _, path := range []*string{&o.binDir, &o.ciliumDir, &o.helm, &o.examples, &o.logs} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return exitUsage
		}
		*path = absolute
	}
	if o.inside != "" {
		return runInside(ctx, o)
	}
	chosen, err := choose(o.run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return exitUsage
	}
	if err := bed.Check(o.ciliumDir); err != nil {
		return cannot(err, chosen)
	}
	var all []row
	for _, s := range chosen {
		if ctx.Err() != nil {
			break
		}
		fmt.Printf("=== %s: %s\n", s.name, s.about)
		all = append(all, runScenario(ctx, o, s)...)
	}
	return finish(all)
}

// runScenario runs one scenario in a sandbox and reads what it left.
func runScenario(ctx context.Context, o options, s scenario) []row {
	ctx, cancel := context.WithTimeout(ctx, scenarioTimeout)
	defer cancel()
	logs := filepath.Join(o.logs, s.name)
	if err := os.RemoveAll(logs); err != nil {
		return []row{failure(s.name, err)}
	}
	began := time.Now()
	err := bed.Sandbox(ctx, "-inside="+s.name, "-bin="+o.binDir, "-cilium="+o.ciliumDir,
		"-helm="+o.helm, "-examples="+o.examples, "-logs="+logs, fmt.Sprintf("-v=%t", o.verbose))
	rows, readErr := readRows(logs)
	switch {
	case errors.Is(err, bed.ErrCannot):
		return []row{{Scenario: s.name, What: err.Error(), Result: skipped}}
	case ctx.Err() != nil:
		rows = append(rows, failure(s.name, fmt.Errorf("stopped after %.0f s: %w", time.Since(began).Seconds(), ctx.Err())))
	case err != nil || readErr != nil:
		rows = append(rows, failure(s.name, errors.Join(err, readErr)))
	}
	return append(rows, row{Scenario: s.name, What: "wall time", Figure: fmt.Sprintf("%.0f s", time.Since(began).Seconds()), Result: noted})
}

// runInside runs a scenario in this process, which Sandbox has started.
func runInside(ctx context.Context, o options) int {
	chosen, err := choose(o.inside)
	if err != nil || !bed.Inside() {
		fmt.Fprintln(os.Stderr, "e2e: -inside is for its own use", err)
		return exitUsage
	}
	if err := os.MkdirAll(o.logs, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return exitFailed
	}
	steps, err := os.Create(filepath.Join(o.logs, "steps.log"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return exitFailed
	}
	defer steps.Close()
	out := io.Writer(steps)
	if o.verbose {
		out = io.MultiWriter(steps, os.Stdout)
	}
	e := &env{name: chosen[0].name, options: bed.Options{
		BinDir: o.binDir, CiliumDir: o.ciliumDir, Helm: o.helm, Examples: o.examples, Logs: o.logs, Log: out,
	}}
	switch err := chosen[0].run(ctx, e); {
	case errors.Is(err, bed.ErrCannot):
		e.rows = append(e.rows, row{Scenario: e.name, What: "not run", Figure: err.Error(), Result: skipped})
	case err != nil:
		e.rows = append(e.rows, failure(e.name, err))
	}
	if err := errors.Join(e.close(), writeRows(o.logs, e.rows)); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return exitFailed
	}
	return 0
}

// cannot says loudly that nothing was tried.
func cannot(err error, chosen []scenario) int {
	banner := strings.Repeat("!", 72)
	fmt.Printf("%s\n!! SKIPPED, not passed: %v\n%s\n", banner, err, banner)
	var rows []row
	for _, s := range chosen {
		rows = append(rows, row{Scenario: s.name, What: "not run", Result: skipped})
	}
	printTable(os.Stdout, rows)
	if !errors.Is(err, bed.ErrCannot) {
		return exitFailed
	}
	return exitSkipped
}

// finish prints the table and says how the run ended.
func finish(rows []row) int {
	printTable(os.Stdout, rows)
	code := 0
	for _, r := range rows {
		switch r.Result {
		case failed:
			return exitFailed
		case skipped:
			code = exitSkipped
		}
	}
	if len(rows) == 0 {
		return exitFailed
	}
	return code
}
