// Command bench measures the whole operator beside its peers and beside bare
// programs that only issue the writes: one control plane per run, the contender
// a process of its own. See docs/performance.md for what comes of it.
//
// Only it finds work that grows: writes, reads, CPU, memory and time with the nodes.
//
//	bench run   [flags]     run the measures, keep the results
//	bench quick [flags]     small sizes; fails where counted work is not what it must be
//	bench report [flags]    write docs/performance.md and its plots from the results
//	bench floor PROGRAM KUBECONFIG WORLD    a bare program; bench starts these itself
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

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
	case "run", "quick", "report":
	default:
		return fmt.Errorf("%q is none of run, quick, report, floor", args[0])
	}
	b, err := newBench(args[0], args[1:])
	if err != nil {
		return err
	}
	switch args[0] {
	case "run":
		return b.run(ctx)
	case "quick":
		return b.quick(ctx)
	default:
		return b.report()
	}
}

// runFloor runs a bare program, and stays until it is stopped, so that its resource
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

// bench is one run of the whole.
type bench struct {
	nodes, rounds    int
	peers, keep      bool
	only             string
	measures         string
	out, docs        string
	settle, patience time.Duration
	store            *bed.Store
	results          results
	began            time.Time
}

// results are kept as JSON, from which the page is written.
type results struct {
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"took"`
	Command string        `json:"command"`
	Cores   int           `json:"cores"`
	Memory  string        `json:"memory"`
	Kernel  string        `json:"kernel"`
	Go      string        `json:"go"`
	Commit  string        `json:"commit"`
	Nodes   int           `json:"nodes"`
	Samples []sample      `json:"samples"`
	// Sizes are bytes per object.
	Sizes map[string]float64 `json:"sizes"`
	// earlier is what runs took whose samples were kept.
	earlier time.Duration
	// allocator is the output of the allocators' Go benchmarks.
	allocator []string
}

func newBench(name string, args []string) (*bench, error) {
	b := &bench{began: time.Now(), store: &bed.Store{}}
	flags := flag.NewFlagSet("bench "+name, flag.ContinueOnError)
	flags.IntVar(&b.nodes, "nodes", 5000, "nodes of the full size; the growth curve has its halves")
	flags.IntVar(&b.rounds, "rounds", 3, "rounds of each contender, interleaved")
	flags.BoolVar(&b.peers, "peers", true, "run cilium-operator and kube-controller-manager too")
	flags.BoolVar(&b.keep, "keep", false, "keep worlds of an earlier run with the same sizes, and its results but for what is measured again")
	flags.StringVar(&b.only, "only", "", "contenders to run, by full name, separated by semicolons; all if empty")
	flags.StringVar(&b.measures, "measures", "cold,join,restart,storm,reclaim,react,rest,modes,patches,growth,sizes", "what to measure")
	out := ".cache/bench"
	if name == "quick" {
		out += "-quick" // or it would wipe what a full run has left
	}
	flags.StringVar(&b.out, "out", out, "folder for worlds, logs and results")
	flags.StringVar(&b.docs, "docs", "docs", "folder of performance.md")
	flags.StringVar(&b.store.BinDir, "bin", ".cache/bin", "folder of the binaries")
	flags.DurationVar(&b.settle, "settle", 2*time.Second, "wait at rest before settled memory is read")
	flags.DurationVar(&b.patience, "patience", 10*time.Minute, "a run that takes longer fails")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if b.out, err = filepath.Abs(b.out); err != nil {
		return nil, err
	}
	if b.store.BinDir, err = filepath.Abs(b.store.BinDir); err != nil {
		return nil, err
	}
	b.store.Dir, b.store.Say, b.store.Settle = b.out, b.say, settle
	b.results = results{
		Began: b.began, Command: "bench " + strings.Join(append([]string{name}, args...), " "), Cores: runtime.NumCPU(),
		Memory: firstLine("/proc/meminfo"), Kernel: firstLine("/proc/version"), Go: runtime.Version(), Commit: revision(), Nodes: b.nodes,
	}
	return b, os.MkdirAll(b.out, 0o755)
}

func (b *bench) say(format string, args ...any) {
	fmt.Printf("%6.0fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) resultsFile() string { return filepath.Join(b.out, "results.json") }

// load takes over what an earlier run measured.
func (b *bench) load() error {
	data, err := os.ReadFile(b.resultsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var old results
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err != nil {
		return fmt.Errorf("results of the earlier run: %w", err)
	}
	if old.Nodes != b.nodes {
		return fmt.Errorf("the earlier run had %d nodes, not %d: leave -keep out, or give the same -nodes", old.Nodes, b.nodes)
	}
	b.results.Samples, b.results.Sizes, b.results.earlier = old.Samples, old.Sizes, old.Took
	for i := range b.results.Samples {
		if s := &b.results.Samples[i]; s.Commit == "" {
			s.Commit = old.Commit
		}
	}
	b.results.Began, b.results.Command = old.Began, old.Command+", then "+b.results.Command
	return nil
}

// save writes what there is so far, so that a run that is stopped is not lost.
func (b *bench) save() error {
	b.results.Took = b.results.earlier + time.Since(b.began)
	data, err := json.MarshalIndent(b.results, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.resultsFile(), data, 0o644)
}

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.Join(strings.Fields(line), " ")
}

// revision is the commit that is checked out, as the contender was built from it.
func revision() string {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
