// Command demo shows the operator at work, on a real API server with simulated
// nodes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

const usage = `demo shows the operator at work, on a real API server with simulated nodes.

  demo run                       the whole story, in about a minute; exit 1 if a rule broke
  demo up                        start the same and leave it running
  demo burst --node=N --pods=P   let N have P pods, on what "up" started; 0 removes them
  demo down                      stop what "up" started
  demo agents                    the simulated nodes of "up"; it starts them itself

Run it from the root of the repository, best by make demo, up, burst and down.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// Agents and watches are cut off at the end; that is no news.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	code := exitCode(ctx, run(ctx, os.Args[1:]))
	stop()
	os.Exit(code)
}

// exitCode tells what went wrong, and returns the code that says so.
func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "demo: stopped")
		return 130
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "demo: %v\nSee demo --help.\n", err)
		return 2
	case errors.Is(err, errBroken):
		return 1
	}
	fmt.Fprintf(os.Stderr, "demo: %v\n", err)
	return 1
}

var (
	errUsage = errors.New("wrong command line")
	// errBroken: what is wrong has been told already.
	errBroken = errors.New("not everything came as expected")
)

func run(ctx context.Context, args []string) error {
	var o options
	var node string
	var pods int
	fs := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	fs.StringVar(&o.binDir, "bin-dir", ".cache/bin", "folder of etcd, kube-apiserver, kubectl and the operator")
	fs.StringVar(&o.runDir, "run-dir", ".run", "folder for state and logs")
	fs.StringVar(&o.examples, "examples", "examples", "folder of the examples, whose pools are applied")
	fs.IntVar(&o.nodes, "nodes", 20, "nodes, half of them in each zone, 4 to 400")
	fs.StringVar(&node, "node", "", "node that burst is about")
	fs.IntVar(&pods, "pods", 60, "pods that burst leaves on the node")
	fs.Usage = func() { fmt.Print(usage, fs.FlagUsages()) }
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if fs.NArg() != 1 {
		return fmt.Errorf("%w: one command is needed: run, up, burst, down or agents", errUsage)
	}
	if o.nodes < 4 || o.nodes > 400 {
		return fmt.Errorf("%w: --nodes is %d: must be between 4 and 400", errUsage, o.nodes)
	}
	p := newPrinter(os.Stdout)
	switch fs.Arg(0) {
	case "run":
		ok, err := tellStory(ctx, o, p)
		if err == nil && !ok {
			return errBroken
		}
		return err
	case "up":
		return up(ctx, o, p)
	case "down":
		return down(o, p)
	case "burst":
		return playBurst(ctx, o, p, node, pods)
	case "agents":
		return runAgents(ctx, o)
	}
	return fmt.Errorf("%w: unknown command %q", errUsage, fs.Arg(0))
}
