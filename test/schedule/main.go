// Command schedule lets the real kube-scheduler bind pods by the addresses that Nodes offer,
// on nearly full pools, while nodes, labels and pools change; see docs/scheduling.md. Every
// version of every object is judged.
//
// Only this suite finds a pod that the real scheduler binds to a node without an address for
// it, or leaves pending although a node has one.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// The kinds of runs.
const (
	// runBinds binds many pods while nodes and pools change, runExact as many pods as
	// there are addresses, and runKinds pods of each kind.
	runBinds, runExact, runKinds = "binds", "exact", "kinds"
)

// settings are the settings of a run.
type settings struct {
	run               string
	binDir, dir       string
	nodes             int
	binds, floorBinds int
	rate              int
	seed              uint64
	// bound is how long a pod may be pending while an eligible node has an address.
	bound time.Duration
	// patience is how long each phase may go without a bind.
	patience time.Duration
	// rounds is how often runExact compares few addresses with plentiful ones, and limit how
	// many times as long pods may then take.
	rounds int
	limit  float64
	// plant raises all offers, which the judge must find.
	plant bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	err := command(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "schedule:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context) error {
	var s settings
	flag.StringVar(&s.run, "run", runBinds, "binds: pods are bound while nodes and pools change; exact: as many pods as addresses; kinds: static pods, DaemonSets, preemption and the like")
	flag.StringVar(&s.binDir, "bin", ".cache/bin", "folder of the binaries")
	flag.StringVar(&s.dir, "dir", ".run/schedule", "folder for state and logs")
	flag.IntVar(&s.nodes, "nodes", 0, "nodes, 4 to 1000; 0: 40, and 10 of -run=exact, whose addresses are for 1,000 pods")
	flag.IntVar(&s.binds, "binds", 10000, "pods to be bound while nodes and pools change")
	flag.IntVar(&s.floorBinds, "floor-binds", 0, "pods to be bound before, without the feature and with it; 0: a fifth of -binds")
	flag.IntVar(&s.rate, "rate", 0, "pods deleted per second, whose addresses others take; 0: as fast as it goes")
	flag.Uint64Var(&s.seed, "seed", 1, "seed of what is left to chance")
	flag.DurationVar(&s.bound, "bound", 30*time.Second, "how long a pod may be pending while an eligible node has an address for it")
	flag.DurationVar(&s.patience, "patience", 2*time.Minute, "a phase in which no pod is bound for that long fails")
	flag.IntVar(&s.rounds, "rounds", 2, "of -run=exact: how often few addresses are compared with plentiful ones")
	flag.Float64Var(&s.limit, "limit", 1.2, "of -run=exact: how many times as long pods may take on few addresses")
	flag.BoolVar(&s.plant, "plant", false, "raise all offers above what there is; the run fails unless that is found")
	flag.Parse()
	if s.nodes == 0 {
		s.nodes = map[string]int{runExact: 10}[s.run]
		s.nodes = cmp.Or(s.nodes, 40)
	}
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case !slices.Contains([]string{runBinds, runExact, runKinds}, s.run):
		return fmt.Errorf("-run is %q: must be %s, %s or %s", s.run, runBinds, runExact, runKinds)
	case s.rounds < 1 || s.rounds > 10:
		return fmt.Errorf("-rounds is %d: must be between 1 and 10", s.rounds)
	case s.nodes < 4 || s.nodes > 1000:
		return fmt.Errorf("-nodes is %d: must be between 4 and 1000", s.nodes)
	case s.binds < 100:
		return fmt.Errorf("-binds is %d: must be 100 or more", s.binds)
	}
	if s.floorBinds == 0 {
		s.floorBinds = s.binds / 5
	}
	for _, dir := range []*string{&s.binDir, &s.dir} {
		var err error
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	// It also applies to all programs that this one starts: they share few cores.
	const gogc = 400
	debug.SetGCPercent(gogc)
	if err := os.Setenv("GOGC", fmt.Sprint(gogc)); err != nil {
		return err
	}
	r, err := run(ctx, s)
	if r != nil {
		r.print(os.Stdout)
	}
	if err != nil {
		return err
	}
	return r.judge()
}

var errFound = errors.New("the table shows findings")
