// Command schedule lets the real kube-scheduler bind pods by the addresses that Nodes
// offer, on nearly full pools, while nodes, labels and pools change; see
// docs/scheduling.md. Every version of every object is judged.
//
// Only it finds a pod that the real scheduler binds to a node without an address for it,
// or leaves pending though a node has one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// settings of a run.
type settings struct {
	binDir, helm, dir string
	nodes             int
	binds, floorBinds int
	rate              int
	seed              uint64
	// bound is how long a pod may be pending while an eligible node has an address.
	bound time.Duration
	// patience is how long each phase may go without a bind.
	patience time.Duration
	// plant raises all offers, which must be found.
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
	flag.StringVar(&s.binDir, "bin", ".cache/bin", "folder of the binaries")
	flag.StringVar(&s.helm, "helm", "helm", "Helm 4")
	flag.StringVar(&s.dir, "dir", ".run/schedule", "folder for state and logs")
	flag.IntVar(&s.nodes, "nodes", 40, "nodes, 4 to 1000")
	flag.IntVar(&s.binds, "binds", 10000, "pods to be bound while nodes and pools change")
	flag.IntVar(&s.floorBinds, "floor-binds", 0, "pods to be bound before, without the feature and with it; 0: a fifth of -binds")
	flag.IntVar(&s.rate, "rate", 0, "pods deleted per second, whose addresses others take; 0: as fast as it goes")
	flag.Uint64Var(&s.seed, "seed", 1, "seed of what is left to chance")
	flag.DurationVar(&s.bound, "bound", 30*time.Second, "how long a pod may be pending while an eligible node has an address for it")
	flag.DurationVar(&s.patience, "patience", 2*time.Minute, "a phase in which no pod is bound for that long fails")
	flag.BoolVar(&s.plant, "plant", false, "raise all offers above what there is; the run fails unless that is found")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
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
	// Of all programs that it starts, too: they share few cores.
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
