//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// scenarioTimeout limits one scenario.
const scenarioTimeout = 20 * time.Minute

// scenario runs on a cluster with Cilium, the operator, DNS and probes, as the scenarios
// before left it. A fresh scenario gets an empty cluster. A scenario that is alone starts its
// own clusters, and leaves none to the next.
type scenario struct {
	name  string
	ci    bool
	fresh bool
	alone bool
	run   func(context.Context, *trial) error
}

// all returns all scenarios, in their order.
func all() []scenario {
	return slices.Concat([]scenario{
		{name: "install", ci: true, fresh: true, run: installScenario},
		{name: "scale", ci: true, run: scaleScenario},
		{name: "upgrade", ci: true, run: upgradeScenario},
		{name: "join", run: joinScenario},
		{name: "outage", run: outageScenario},
		{name: "agents", run: agentsScenario},
		{name: "uninstall", run: uninstallScenario},
		{name: "operator", fresh: true, run: operatorScenario},
		{name: "cilium", fresh: true, run: ciliumScenario},
		{name: "kubelet", alone: true, run: kubeletScenario},
		{name: "schedule", alone: true, run: scheduleScenario},
		{name: "compare", alone: true, run: compareScenario},
		{name: "renumber", alone: true, run: renumberScenario},
		{name: "migration", alone: true, run: migrationScenario},
		{name: "modes-policies", alone: true, run: policiesScenario},
	}, modeScenarios(), variantScenarios(), docsScenarios())
}

// choose returns the scenarios of a comma-separated list of names, ci or all. The part of
// names before a dash selects the ones that begin with it: docs includes docs-install.
func choose(list string) ([]scenario, error) {
	var chosen []scenario
	wanted := strings.Split(list, ",")
	for _, s := range all() {
		family, _, _ := strings.Cut(s.name, "-")
		if slices.Contains(wanted, s.name) || slices.Contains(wanted, family) || slices.Contains(wanted, "all") || s.ci && slices.Contains(wanted, "ci") {
			chosen = append(chosen, s)
		}
	}
	for _, name := range wanted {
		known := name == "ci" || name == "all" || slices.ContainsFunc(all(), func(s scenario) bool {
			return s.name == name || strings.HasPrefix(s.name, name+"-")
		})
		if !known {
			return nil, fmt.Errorf("%q is no scenario: ci, all, or some of %s", name, strings.Join(names(), ","))
		}
	}
	return chosen, nil
}

func names() []string {
	var out []string
	for _, s := range all() {
		out = append(out, s.name)
	}
	return out
}

// trial is a scenario that is running.
type trial struct {
	*bed
	name string
	rows []row
}

// note adds a figure without a judgement, check a judged one.
func (t *trial) note(what string, value any) { t.add(what, value, noted) }

func (t *trial) check(what string, value any, ok bool) {
	result := passed
	if !ok {
		result = failed
	}
	t.add(what, value, result)
}

func (t *trial) add(what string, value any, r result) {
	t.rows = append(t.rows, row{t.name, what, fmt.Sprint(value), r})
	t.say("%s: %s: %v %s", t.name, what, value, r)
}

// seconds returns the time since a moment, for the table.
func seconds(since time.Time) string { return fmt.Sprintf("%.0f s", time.Since(since).Seconds()) }

// runScenarios implements the command "run".
func runScenarios(ctx context.Context, b *bed) int {
	chosen, err := choose(b.options.run)
	if err != nil {
		usage(err.Error())
	}
	b.cluster.Leashed = !b.options.keep
	if err := b.cluster.Check(); err != nil {
		return code(err)
	}
	running, err := b.cluster.State.Names()
	if err != nil || len(running) > 0 {
		return code(errors.Join(err, errors.New("a cluster is there already: make cluster-down removes it")))
	}
	// These are the logs of all clusters of this run, not only of the last one.
	if err := os.RemoveAll(b.cluster.Logs()); err != nil {
		return code(err)
	}
	rows, err := b.runAll(ctx, chosen)
	if err == nil || !b.options.keep {
		// Not with ctx, as it must happen after an interrupt, too.
		err = errors.Join(err, b.cluster.Down())
	}
	printTable(os.Stdout, rows)
	b.say("logs are in %s", b.cluster.Logs())
	if err == nil && slices.ContainsFunc(rows, func(r row) bool { return r.result == failed }) {
		err = errors.New("a scenario failed")
	}
	return code(err)
}

// runAll skips, after a scenario that did not finish, the ones that would start with its
// broken cluster.
func (b *bed) runAll(ctx context.Context, chosen []scenario) ([]row, error) {
	var rows []row
	var broken []error
	installed := false
	for _, s := range chosen {
		if len(broken) > 0 && (!s.fresh && !s.alone || ctx.Err() != nil) {
			rows = append(rows, row{s.name, "not run: its cluster is broken", "-", failed})
			continue
		}
		t := &trial{bed: b, name: s.name}
		began := time.Now()
		err := b.runOne(ctx, s, t, installed)
		installed = !s.alone
		t.note("whole scenario", seconds(began))
		rows = append(rows, t.rows...)
		if err != nil {
			rows = append(rows, row{s.name, "ran to its end", firstLine(err), failed})
			broken = append(broken, fmt.Errorf("%s: %w", s.name, err))
		}
		b.collect(s.name)
	}
	return rows, errors.Join(broken...)
}

func (b *bed) runOne(ctx context.Context, s scenario, t *trial, installed bool) error {
	ctx, cancel := context.WithTimeout(ctx, scenarioTimeout)
	defer cancel()
	b.say("--- %s", s.name)
	if s.alone {
		return s.run(ctx, t)
	}
	if s.fresh || !installed {
		if err := b.start(ctx); err != nil {
			return err
		}
	}
	if !s.fresh && !installed {
		if err := b.installAll(ctx); err != nil {
			return err
		}
	}
	return s.run(ctx, t)
}

// installAll brings the cluster to the state after the scenario install.
func (b *bed) installAll(ctx context.Context) error {
	for _, step := range []func(context.Context) error{b.install, b.awaitInstalled, b.installDNS, b.installProbes} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
