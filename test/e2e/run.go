//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

// runAll first runs the scenarios that load the machine, one by one, then the others, o.atOnce
// at a time. The rows are in the order of chosen.
func runAll(ctx context.Context, o options, chosen []scenario) []row {
	rows := make([][]row, len(chosen))
	for i, s := range chosen {
		if s.alone {
			rows[i] = runScenario(ctx, o, s)
		}
	}
	var rest sync.WaitGroup
	slots := make(chan struct{}, o.atOnce)
	for i, s := range chosen {
		if s.alone {
			continue
		}
		slots <- struct{}{}
		rest.Go(func() {
			rows[i] = runScenario(ctx, o, s)
			<-slots
		})
	}
	rest.Wait()
	return slices.Concat(rows...)
}

// runScenario runs one scenario in a sandbox and reads its results.
func runScenario(ctx context.Context, o options, s scenario) []row {
	if err := ctx.Err(); err != nil {
		return []row{failure(s.name, err)}
	}
	fmt.Printf("=== %s\n", s.name)
	ctx, cancel := context.WithTimeout(ctx, scenarioTimeout)
	defer cancel()
	logs := filepath.Join(o.logs, s.name)
	if err := os.RemoveAll(logs); err != nil {
		return []row{failure(s.name, err)}
	}
	began := time.Now()
	err := bed.Sandbox(ctx, "-inside="+s.name, "-bin="+o.binDir, "-cilium="+o.ciliumDir,
		"-helm="+o.helm, "-examples="+o.examples, "-logs="+logs, fmt.Sprintf("-v=%t", o.verbose), fmt.Sprintf("-patched=%t", o.patched))
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
		out = io.MultiWriter(steps, named{o.inside, os.Stdout})
	}
	e := newEnv(chosen[0], o, out)
	do := chosen[0].run
	if do == nil {
		do = func(ctx context.Context, e *env) error { return e.script(ctx) }
	}
	switch err := do(ctx, e); {
	case errors.Is(err, bed.ErrCannot):
		e.rows = append(e.rows, row{Scenario: e.name, What: "not run", Figure: err.Error(), Result: skipped})
	case err != nil:
		e.rows = append(e.rows, failure(e.name, err))
	}
	e.checkRights()
	if err := errors.Join(e.close(), writeRows(o.logs, e.rows)); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return exitFailed
	}
	return 0
}

func newEnv(s scenario, o options, log io.Writer) *env {
	if s.file == "" {
		s.file = s.name
	}
	return &env{
		name: s.name, file: s.file + ".txtar", patched: o.patched,
		options: bed.Options{BinDir: o.binDir, CiliumDir: o.ciliumDir, Helm: o.helm, Examples: o.examples, Logs: o.logs, Log: log},
		nodes:   map[string]*bed.Node{}, gates: map[*bed.Node]*bed.Gate{}, pods: map[string][]*bed.Pod{}, numbers: map[string]int{},
		flows: map[string][]*bed.Pings{}, streams: map[string][]*bed.Stream{}, remembered: map[string]*ciliumv2.CiliumNode{},
	}
}

// named prefixes each line with the scenario's name, as several scenarios may write
// at once. Each Write is a line.
type named struct {
	name string
	to   io.Writer
}

func (n named) Write(line []byte) (int, error) {
	if _, err := fmt.Fprintf(n.to, "%-20s %s", n.name, line); err != nil {
		return 0, err
	}
	return len(line), nil
}
