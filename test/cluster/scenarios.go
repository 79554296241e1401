//go:build linux

package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/budgets"
)

//go:embed testdata/*.txtar
var scripts embed.FS

// scenarios returns all of them. The first seven take over the cluster of the one before.
func scenarios() []script.Scenario {
	return []script.Scenario{
		{Name: "install", CI: true},
		{Name: "scale", CI: true},
		{Name: "upgrade", CI: true},
		{Name: "join"},
		{Name: "outage"},
		{Name: "agents"},
		{Name: "uninstall"},
		{Name: "operator"},
		{Name: "versions", File: "operator"},
		{Name: "cilium"},
		{Name: "kubelet"},
		{Name: "schedule"},
		{Name: "schedule-multi-pool", File: "schedule"},
		{Name: "schedule-delegated-plugin", File: "schedule"},
		{Name: "delegated"},
		{Name: "ipv6-off"},
		{Name: "disk"},
		{Name: "stays"},
		{Name: "stays-delegated-plugin", File: "stays"},
		{Name: "compare-cluster-pool", File: "compare"},
		{Name: "compare-multi-pool", File: "compare"},
		{Name: "compare-crd", File: "compare"},
		{Name: "compare-delegated-plugin", File: "compare"},
		{Name: "renumber"},
		{Name: "renumber-delegated-plugin", File: "renumber"},
		{Name: "migration"},
		{Name: "move"},
		{Name: "observe-cluster-pool", File: "observe"},
		{Name: "observe-multi-pool", File: "observe"},
		{Name: "policies"},
		{Name: "restore"},
		{Name: "mutating"},
		{Name: "modes-multi-pool", File: "modes"},
		{Name: "modes-kubernetes", File: "modes"},
		{Name: "modes-delegated-plugin", File: "modes"},
		{Name: "modes-dual-stack", File: "modes"},
		{Name: "modes-tunnel", File: "modes"},
		{Name: "variants-helm4-operator-first-wait", File: "variants"},
		{Name: "variants-helm4-cilium-first-wait", File: "variants"},
		{Name: "variants-helm3-operator-first-wait", File: "variants"},
		{Name: "variants-helm3-cilium-first", File: "variants"},
		{Name: "variants-static", File: "variants"},
		{Name: "variants-static-server-side", File: "variants"},
		{Name: "first-hour"},
		{Name: "docs-readme", File: "docs"},
		{Name: "docs-install", File: "docs"},
		{Name: "docs-operations", File: "docs"},
	}
}

// env is a scenario that is running.
type env struct {
	*bed
	script.Table
	remembered map[string]snapshot
	pinged     losses // when they were last judged
	lacked     int    // sandboxes without an address when the scenario got its cluster
	budgets    *budgets.Judge
	rules      *invariant.Checker // passes pods to budgets
}

// runScenarios implements the command "run".
func runScenarios(ctx context.Context, b *bed) int {
	chosen, err := script.Choose(scenarios(), b.options.run)
	if err != nil {
		usage(err.Error())
	}
	b.cluster.Leashed = true
	if err := b.cluster.Check(); err != nil {
		return code(err)
	}
	running, err := b.cluster.State.Names()
	if err != nil || len(running) > 0 {
		return code(errors.Join(err, errors.New("a cluster is there already: make cluster-down removes it")))
	}
	// These are the logs of all clusters of this run, not only of the last one.
	if err := errors.Join(os.RemoveAll(b.cluster.Logs()), os.MkdirAll(b.cluster.Logs(), 0o755)); err != nil {
		return code(err)
	}
	var rows []script.Row
	for _, s := range chosen {
		if ctx.Err() != nil {
			break
		}
		e := &env{bed: b, Table: script.Table{Scenario: s.Name, Logf: b.say}, remembered: map[string]snapshot{}}
		began := time.Now()
		if err := e.run(ctx, s); err != nil {
			e.Rows = append(e.Rows, script.Failure(s.Name, err))
			b.say("%v", err)
			b.installed = false
		}
		e.Note("whole scenario", "%s", seconds(began))
		rows = append(rows, e.Rows...)
		b.collect(s.Name)
	}
	// Not with ctx, as it must happen after an interrupt, too.
	if err := b.cluster.Down(); err != nil {
		rows = append(rows, script.Failure("all", err))
	}
	b.say("logs are in %s", b.cluster.Logs())
	return script.Finish(os.Stdout, rows)
}

// run runs a scenario's script.
func (e *env) run(ctx context.Context, s script.Scenario) error {
	ctx, cancel := context.WithTimeout(ctx, e.options.timeout)
	defer cancel()
	e.say("--- %s", s.Name)
	text, err := scripts.ReadFile("testdata/" + s.Script())
	if err != nil {
		return fmt.Errorf("read script: %w", err)
	}
	r := script.Run{
		Name: s.Name, Text: text, Dir: e.cluster.Logs(), Folder: e.options.repository, Env: e.environment(),
		Commands: map[string]script.Command{}, Logf: e.say,
	}
	for name, run := range commands() {
		r.Commands[name] = func(ctx context.Context, a *script.Arguments) error { return run(ctx, e, a) }
	}
	return r.Do(ctx)
}

// seconds returns the time since a moment, for the table.
func seconds(since time.Time) string { return fmt.Sprintf("%.1f s", time.Since(since).Seconds()) }
