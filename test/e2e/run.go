//go:build linux

package main

import (
	"context"
	"encoding/json"
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
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
)

// runAll first runs the scenarios that load the machine, one by one, then the others, atOnce at
// a time. The rows are in the order of chosen.
func runAll(ctx context.Context, o options, chosen []script.Scenario) []script.Row {
	rows := make([][]script.Row, len(chosen))
	for i, s := range chosen {
		if s.Alone {
			rows[i] = runScenario(ctx, o, s)
		}
	}
	var rest sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, s := range chosen {
		if s.Alone {
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
func runScenario(ctx context.Context, o options, s script.Scenario) []script.Row {
	if err := ctx.Err(); err != nil {
		return []script.Row{script.Failure(s.Name, err)}
	}
	fmt.Printf("=== %s\n", s.Name)
	ctx, cancel := context.WithTimeout(ctx, scenarioTimeout)
	defer cancel()
	logs := filepath.Join(o.logs, s.Name)
	if err := os.RemoveAll(logs); err != nil {
		return []script.Row{script.Failure(s.Name, err)}
	}
	began := time.Now()
	err := bed.Sandbox(ctx, "-inside="+s.Name, "-bin="+o.binDir, "-kubernetes="+o.kubernetes, "-cilium="+o.ciliumDir, "-helm="+o.helm, "-logs="+logs, fmt.Sprintf("-patched=%t", o.patched))
	rows, readErr := readRows(logs)
	switch {
	case errors.Is(err, bed.ErrCannot):
		return []script.Row{{Scenario: s.Name, What: err.Error(), Result: script.Skipped}}
	case ctx.Err() != nil:
		rows = append(rows, script.Failure(s.Name, fmt.Errorf("stopped after %.0f s: %w", time.Since(began).Seconds(), ctx.Err())))
	case err != nil || readErr != nil:
		rows = append(rows, script.Failure(s.Name, errors.Join(err, readErr)))
	}
	return append(rows, script.Row{Scenario: s.Name, What: "wall time", Figure: fmt.Sprintf("%.0f s", time.Since(began).Seconds()), Result: script.Noted})
}

// runInside runs a scenario in this process, which Sandbox has started.
func runInside(ctx context.Context, o options) int {
	chosen, err := script.Choose(scenarios(), o.inside)
	if err != nil || !bed.Inside() {
		fmt.Fprintln(os.Stderr, "e2e: -inside is for its own use", err)
		return script.ExitUsage
	}
	if err := os.MkdirAll(o.logs, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return script.ExitFailed
	}
	steps, err := os.Create(filepath.Join(o.logs, "steps.log"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return script.ExitFailed
	}
	defer steps.Close()
	e := newEnv(chosen[0], o, io.MultiWriter(steps, named{o.inside, os.Stdout}))
	switch err := e.script(ctx); {
	case errors.Is(err, bed.ErrCannot):
		e.Rows = append(e.Rows, script.Row{Scenario: e.scenario.Name, What: "not run", Figure: err.Error(), Result: script.Skipped})
	case err != nil:
		e.Rows = append(e.Rows, script.Failure(e.scenario.Name, err))
	}
	e.checkRights()
	if err := errors.Join(e.close(), writeRows(o.logs, e.Rows)); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return script.ExitFailed
	}
	return 0
}

func newEnv(s script.Scenario, o options, log io.Writer) *env {
	e := &env{
		scenario: s, patched: o.patched,
		options: bed.Options{BinDir: o.binDir, Kubernetes: o.kubernetes, CiliumDir: o.ciliumDir, Helm: o.helm, Examples: filepath.Join(harness.Root(), "examples"), Logs: o.logs, Log: log},
		nodes:   map[string]*bed.Node{}, gates: map[*bed.Node]*bed.Gate{}, pods: map[string][]*bed.Pod{}, numbers: map[string]int{},
		flows: map[string][]*bed.Pings{}, streams: map[string][]*bed.Stream{}, remembered: map[string]*ciliumv2.CiliumNode{},
	}
	e.Table = script.Table{Scenario: s.Name, Logf: e.logf}
	return e
}

func rowsFile(logs string) string { return filepath.Join(logs, "result.json") }

func writeRows(logs string, rows []script.Row) error {
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return os.WriteFile(rowsFile(logs), data, 0o644)
}

func readRows(logs string) (rows []script.Row, err error) {
	data, err := os.ReadFile(rowsFile(logs))
	if err == nil {
		err = json.Unmarshal(data, &rows)
	}
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	return rows, nil
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
