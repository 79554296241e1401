// Command bench measures the whole operator beside its peers and beside bare programs that
// only issue its writes. Each run has a control plane of its own, and each contender is a
// process.
//
//	bench run   [flags]     run the measures, and write the results and report.md
//	bench quick [flags]     small sizes; fails if counted work is not as expected
//	bench floor PROGRAM KUBECONFIG WORLD    run a bare program; bench starts these itself
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/floor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("choose a command: run, quick or floor")
	}
	ctrl.SetLogger(logr.Discard())
	switch args[0] {
	case "floor":
		return runFloor(ctx, args[1:])
	case "run", "quick":
		b, err := newBench(args)
		if err != nil {
			return err
		}
		return b.run(ctx)
	}
	return fmt.Errorf("unknown command %q: choose run, quick or floor", args[0])
}

// runFloor runs a bare program, which then stays until it is stopped, so that its resource
// usage can be read.
func runFloor(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("floor needs PROGRAM KUBECONFIG WORLD")
	}
	var w bed.World
	if err := json.Unmarshal([]byte(args[2]), &w); err != nil {
		return err
	}
	program := floor.Programs()[args[0]]
	if program == nil {
		return fmt.Errorf("no bare program %q", args[0])
	}
	f, err := floor.New(args[1], w, func(text string) { fmt.Println(text) })
	if err != nil {
		return err
	}
	if err := program(ctx, f); err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}
