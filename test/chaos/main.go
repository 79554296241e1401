// Command chaos runs the operator against every failure that its environment can have, on a
// real etcd and kube-apiserver, and judges every version of every object.
//
// Only this suite finds what takes real processes that die at any moment: a lost Lease, a
// broken watch, an API server that forgets.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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
		fmt.Fprintln(os.Stderr, "chaos: stopped; the same command goes on from here")
		return 130
	case errors.Is(err, demo.ErrUnexpected):
		return 1
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "chaos: %v\nSee chaos --help.\n", err)
		return 2
	}
	fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
	return 1
}

var errUsage = demo.ErrUsage

func command(ctx context.Context, args []string) error {
	switch {
	case len(args) == 5 && args[0] == "check":
		return runChecker(ctx, args[1], args[2], mode(args[3]), args[4])
	case len(args) > 0 && demo.Has(args[0]):
		return demo.Command(ctx, args)
	}
	var l loop
	var modeName, only string
	fs := pflag.NewFlagSet("chaos", pflag.ContinueOnError)
	fs.StringVar(&l.BinDir, "bin-dir", ".cache/bin", "folder of etcd, kube-apiserver and the operator")
	fs.StringVar(&l.runDir, "run-dir", ".run/chaos", "folder for state and logs")
	fs.IntVar(&l.Nodes, "nodes", 200, "nodes, 4 to 500")
	fs.DurationVar(&l.Faults, "faults", time.Minute, "how long there are faults; longer where not every kind was injected by then")
	fs.StringVar(&modeName, "mode", crdMode.String(), "IPAM mode of the agents: crd, multi-pool or kubernetes")
	fs.StringVar(&l.Run, "run", defaultScenario(), "the scenario, see above")
	fs.StringVar(&only, "only", "", "inject this fault of the scenario alone, as the report prints it; empty: all")
	fs.Uint64Var(&l.Seed, "seed", 0, "seed of the first run; 0: a new one")
	fs.DurationVar(&l.Skew, "skew", skew, "how far the operators' clocks differ in the scenario clocks; more than the default must be found")
	fs.StringVar(&l.Overlay, "overlay", "", "build the operators with this file as -overlay of go build, which plants faults")
	fs.StringVar(&l.Mutant, "mutant", "", "the planted fault that the operators have")
	fs.IntVar(&l.count, "count", 1, "how many runs; those that a loop has done already count")
	fs.BoolVar(&l.restart, "restart", false, "begin a loop anew")
	fs.Usage = func() { fmt.Print(usage, usageOfScenarios(), "\nFlags:\n", fs.FlagUsages()) }
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	var err error
	if l.Mode, err = parseMode(modeName); err != nil {
		return fmt.Errorf("%w: --mode is %q: %w", errUsage, modeName, err)
	}
	if err := l.choose(only); err != nil {
		return err
	}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("%w: unexpected argument %q", errUsage, fs.Arg(0))
	case l.Nodes < 4 || l.Nodes > 500:
		return fmt.Errorf("%w: --nodes is %d: must be between 4 and 500", errUsage, l.Nodes)
	case l.count < 1:
		return fmt.Errorf("%w: --count is %d: must be 1 or more", errUsage, l.count)
	}
	return l.begins(ctx)
}

// choose validates the scenario, and the only fault of it to inject, if given.
func (s *settings) choose(only string) error {
	chosen, err := parseScenario(s.Run)
	if err != nil {
		return fmt.Errorf("%w: --run is %q: %w", errUsage, s.Run, err)
	}
	if chosen.pool != "" && !s.Mode.is(crdMode) {
		return fmt.Errorf("%w: --mode is %s: the scenario %s is of crd mode", errUsage, s.Mode, chosen.name)
	}
	if s.Run == defaultScenario() {
		s.Run = ""
	}
	s.Only = fault(only)
	if only != "" && !slices.ContainsFunc(chosen.own(&chaos{}).faults, func(f named) bool { return f.kind == s.Only }) {
		return fmt.Errorf("%w: --only is %q: no fault of the scenario %s", errUsage, only, chosen.name)
	}
	return nil
}

// begins creates the folder of runs, and runs the loop.
func (l loop) begins(ctx context.Context) (err error) {
	for _, dir := range []*string{&l.BinDir, &l.runDir} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(l.runDir, 0o700); err != nil {
		return err
	}
	var mu sync.Mutex
	l.say = func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	return l.run(ctx)
}
