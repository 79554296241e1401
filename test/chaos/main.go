// Command chaos runs the operator against every failure that its environment can have, on a
// real etcd and kube-apiserver, and judges every version of every object.
//
// Only this suite finds faults of real processes that die at any moment: a lost Lease, a broken
// watch, an API server that forgets.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cilium-pool/cilium-pool-operator/test/chaos/demo"
)

const usage = `chaos lets two operators serve nodes whose agents are simulated, while operators,
kube-apiserver and etcd are killed and paused, and people edit pools, nodes and
blocks. Then everything must settle. Every version of every object is judged.

Run it from the root of the repository, best by make chaos. "chaos demo" and others
run the same by a script, for people to watch: see chaos demo --help.

Exit codes: 0 all runs passed, 1 one failed, 2 wrong command line, 130 stopped.

Scenarios, and what only each finds:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// Connections of agents and watches break all the time; do not log that.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	code := exitCode(ctx, command(ctx, os.Args[1:]))
	stop()
	os.Exit(code)
}

func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "chaos: stopped")
		return 130
	case errors.Is(err, demo.ErrUnexpected):
		return 1
	case errors.Is(err, demo.ErrUsage):
		fmt.Fprintf(os.Stderr, "chaos: %v\nSee chaos --help.\n", err)
		return 2
	}
	fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
	return 1
}

func command(ctx context.Context, args []string) error {
	if len(args) > 0 && demo.Has(args[0]) {
		return demo.Command(ctx, args)
	}
	var s settings
	var modeName, scenarioName, runDir string
	var count int
	fs := pflag.NewFlagSet("chaos", pflag.ContinueOnError)
	fs.StringVar(&s.binDir, "bin-dir", ".cache/bin", "folder of etcd, kube-apiserver and the operator")
	fs.StringVar(&s.older, "older", "", "program of an earlier operator, for --run=versions")
	fs.StringVar(&runDir, "run-dir", ".run/chaos", "folder for state and logs")
	fs.IntVar(&s.nodes, "nodes", 200, "nodes, 4 to 500")
	fs.DurationVar(&s.duration, "faults", time.Minute, "how long there are faults; longer where not every kind was injected by then")
	fs.StringVar(&modeName, "mode", string(crdMode), "IPAM mode of the agents: crd, multi-pool or kubernetes")
	fs.StringVar(&scenarioName, "run", scenarios()[0].name, "the scenario, see above")
	fs.Uint64Var(&s.seed, "seed", 0, "seed of the first run, which increases by one with each run; 0: a new one")
	fs.IntVar(&count, "count", 1, "how many runs")
	fs.Usage = func() { fmt.Print(usage, usageOfScenarios(), "\nFlags:\n", fs.FlagUsages()) }
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", demo.ErrUsage, err)
	}
	var errs [4]error
	s.mode, errs[0] = parseMode(modeName)
	s.scenario, errs[1] = parseScenario(scenarioName)
	s.binDir, errs[2] = filepath.Abs(s.binDir)
	runDir, errs[3] = filepath.Abs(runDir)
	switch err := errors.Join(errs[:]...); {
	case err != nil:
		return fmt.Errorf("%w: --mode=%s --run=%s: %w", demo.ErrUsage, modeName, scenarioName, err)
	case fs.NArg() > 0:
		return fmt.Errorf("%w: unexpected argument %q", demo.ErrUsage, fs.Arg(0))
	case s.scenario.versions != (s.older != ""):
		return fmt.Errorf("%w: --run=versions needs --older, and no other scenario takes it: make chaos RUN=versions builds the program", demo.ErrUsage)
	case s.nodes < 4 || s.nodes > 500:
		return fmt.Errorf("%w: --nodes is %d: must be between 4 and 500", demo.ErrUsage, s.nodes)
	case count < 1:
		return fmt.Errorf("%w: --count is %d: must be 1 or more", demo.ErrUsage, count)
	}
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano()) % 1e9 * 1000
	}
	return repeat(ctx, s, runDir, count)
}

// repeat repeats runs until count have passed, or one has failed.
func repeat(ctx context.Context, s settings, runDir string, count int) error {
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return err
	}
	for i := range count {
		say("run %d of %d: %s, seed %d, %d nodes, %s mode", i+1, count, s.scenario.name, s.seed, s.nodes, s.mode)
		r, err := run(ctx, s, filepath.Join(runDir, "run"), say)
		if r != nil {
			r.print(os.Stdout)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return s.failed(runDir, err)
		}
		s.seed++
	}
	return nil
}

// failed keeps the files of a failed run, and returns how to repeat it.
func (s settings) failed(runDir string, err error) error {
	kept := filepath.Join(runDir, fmt.Sprintf("failed-%d", s.seed))
	err = errors.Join(err, os.RemoveAll(kept), os.Rename(filepath.Join(runDir, "run"), kept))
	var causes []string // each once
	for _, line := range strings.Split(err.Error(), "\n") {
		if !slices.Contains(causes, line) {
			causes = append(causes, line)
		}
	}
	return fmt.Errorf("%s\nlogs: %s\nagain: make chaos RUN=%s MODE=%s SEED=%d NODES=%d FAULTS=%s",
		strings.Join(causes, "\n"), kept, s.scenario.name, s.mode, s.seed, s.nodes, s.duration)
}
