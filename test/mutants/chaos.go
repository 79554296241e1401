package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
)

// chaosPackage runs operators as processes.
const chaosPackage = "./test/chaos"

// scenarios returns those of make chaos that are checks. Each takes minutes.
func scenarios() []string { return []string{"network", "clocks", "versions", "renumber"} }

// byScenario applies to the mutants of one scenario.
func byScenario(name string) func(mutant) string {
	return func(m mutant) string {
		if m.Scenario != name {
			return ""
		}
		return chaosPackage
	}
}

// chaos runs a scenario with operators that have the mutant: four nodes, and each fault
// of the scenario once.
func chaos(scenario string) func(ctx context.Context, pkg, program, mutant string) (string, error) {
	return func(ctx context.Context, _, program, mutant string) (string, error) {
		dir := filepath.Dir(program)
		bounded, cancel := context.WithTimeout(ctx, longHang)
		defer cancel()
		out, failed, err := command(bounded, "", "", program, "--run="+scenario, "--nodes=4", "--faults=1s", "--seed=1",
			"--run-dir="+filepath.Join(dir, "chaos"), "--overlay="+overlayIn(dir), "--mutant="+mutant)
		switch {
		case bounded.Err() != nil && ctx.Err() == nil:
			return "hangs", nil
		case err != nil || !failed:
			return "", err
		}
		return whatFailed(out)
	}
}

// whatFailed returns the beginning of what chaos reports about a failed run.
func whatFailed(out []byte) (string, error) {
	m := regexp.MustCompile(`(?m)^chaos: (.{1,100})`).FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("chaos failed, and does not say why:\n%s", out)
	}
	return string(bytes.TrimSpace(m[1])), nil
}
