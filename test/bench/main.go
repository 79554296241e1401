// Command bench measures the whole operator and compares it with its peers and with bare
// programs that only issue the writes. Each run has its own control plane, and the contender
// is a separate process.
//
// Only it finds work that grows with the nodes: writes, reads, CPU, memory and time.
//
//	bench run   [flags]     run the measures and keep the results
//	bench quick [flags]     small sizes; fails if counted work is not as expected
//	bench report [flags]    write report.md and growth.svg beside the results of the runs
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
		return errors.New("say what: run, quick, report or floor")
	}
	ctrl.SetLogger(logr.Discard())
	switch args[0] {
	case "floor":
		return runFloor(ctx, args[1:])
	case "report":
		return report(args[1:])
	case "run", "quick":
	default:
		return fmt.Errorf("%q is none of run, quick, report, floor", args[0])
	}
	b, err := newBench(args[0], args[1:])
	if err != nil {
		return err
	}
	if args[0] == "quick" {
		return b.quick(ctx)
	}
	return b.run(ctx)
}

// runFloor runs a bare program, which then stays until it is stopped, so that its resource
// usage can be read.
func runFloor(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("floor wants PROGRAM KUBECONFIG WORLD")
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
