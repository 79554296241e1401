//go:build linux

// Command e2e runs the operator with real Cilium on this machine, scenario by scenario, each
// in its own bed, and prints one table of the results.
//
// Only this suite finds where Cilium's own agent behaves differently from the simulated agent
// of the other suites: in handshakes, restores, routes and packets, at any moment of an
// agent's life.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
)

const (
	// scenarioTimeout limits the duration of one scenario.
	scenarioTimeout = 40 * time.Minute
	// atOnce is the number of scenarios that run at the same time, of those that mostly wait.
	atOnce = 3
)

type options struct {
	run    string
	binDir string
	// kubernetes is the folder of etcd and kube-apiserver.
	kubernetes string
	ciliumDir  string
	helm       string
	logs       string
	patched    bool   // the agents have the patches of test/cilium
	inside     string // the one scenario that a process in the sandbox runs
}

func main() {
	var o options
	flag.StringVar(&o.run, "run", "ci", "scenarios to run, separated by commas; ci: those of every change; all: all but the next three; migrate: moves from other modes, and plans that change; modes: the operator's other modes; matrix: what each pair of versions must do")
	flag.StringVar(&o.binDir, "bin", ".cache/bin", "folder of kubectl, its plugin and cilium-pool-operator")
	flag.StringVar(&o.kubernetes, "kubernetes", ".cache/bin", "folder of etcd and kube-apiserver")
	flag.StringVar(&o.ciliumDir, "cilium", ".cache/bin/cilium-1.20.2", "folder of Cilium's programs, its bpf folder, its CRDs and its chart")
	flag.BoolVar(&o.patched, "patched", false, "the agents have the patches of test/cilium/patches")
	flag.StringVar(&o.helm, "helm", "helm", "Helm, which renders the agents' configuration from Cilium's chart")
	flag.StringVar(&o.logs, "logs", ".run/e2e", "folder of the logs")
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
	for _, path := range []*string{&o.binDir, &o.kubernetes, &o.ciliumDir, &o.helm, &o.logs} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return script.ExitUsage
		}
		*path = absolute
	}
	if o.inside != "" {
		return runInside(ctx, o)
	}
	chosen, err := script.Choose(scenarios(), o.run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return script.ExitUsage
	}
	if err := bed.Check(o.ciliumDir); err != nil {
		return cannot(err, chosen)
	}
	return script.Finish(os.Stdout, runAll(ctx, o, chosen))
}

// cannot prints that the scenarios were not run, and the reason.
func cannot(err error, chosen []script.Scenario) int {
	script.Banner(os.Stdout, err)
	var rows []script.Row
	for _, s := range chosen {
		rows = append(rows, script.Row{Scenario: s.Name, What: "not run", Result: script.Skipped})
	}
	if code := script.Finish(os.Stdout, rows); errors.Is(err, bed.ErrCannot) {
		return code
	}
	return script.ExitFailed
}
