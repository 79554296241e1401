package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

const (
	// fullSize is the number of nodes of the tables; the growth curve covers smaller sizes
	// too.
	fullSize = 5000
	// usualRounds is how often a contender runs if neither its measure nor the command line
	// sets a number.
	usualRounds = 3
	// keptResults is the folder of the results of runs, and of the report from them.
	keptResults = ".run/bench"
)

// bench is one run of the whole benchmark.
type bench struct {
	nodes            int
	blocks, pools    int // of the measure pools, at its largest size
	rounds           int // of every measure; 0: each measure's own number
	pods             int // per node, in measures whose world has pods; 0: each measure's own number
	peers, keep      bool
	fsync            bool
	only             string
	mode             string // multiPoolOnly, or empty: every mode
	measures         string
	out, resultsDir  string
	settle, patience time.Duration
	store            *bed.Store
	results          results
	began            time.Time
}

func newBench(name string, args []string) (*bench, error) {
	b := &bench{began: time.Now(), store: &bed.Store{}}
	flags := flag.NewFlagSet("bench "+name, flag.ContinueOnError)
	flags.IntVar(&b.nodes, "nodes", fullSize, "number of nodes")
	flags.IntVar(&b.rounds, "rounds", 0, "rounds of every measure, interleaved, fewer of some contenders (default: what a measure sets, 3 where it sets none)")
	flags.IntVar(&b.blocks, "blocks", fullBlocks, "number of blocks of the measure pools at its largest of three sizes, each twice the one before")
	flags.IntVar(&b.pools, "pools", fullPools, "number of pools of the measure pools")
	flags.IntVar(&b.pods, "pods", 0, "pods per node of the measures whose clusters have pods, with the blocks that they need (default: what a measure sets, 20 for restart)")
	flags.BoolVar(&b.peers, "peers", true, "run cilium-operator and kube-controller-manager too")
	flags.BoolVar(&b.fsync, "fsync", false, "etcd syncs each write to disk; results go into tables of their own")
	flags.BoolVar(&b.keep, "keep", false, "use the worlds that an earlier run of the same binaries made")
	flags.StringVar(&b.only, "only", "", "contenders to run, by full name, separated by semicolons; all if empty. The report then leaves their results out")
	flags.StringVar(&b.mode, "mode", "", multiPoolOnly+": only contenders in that mode, with results of their own, for clusters in which crd mode is not measured; all modes if empty")
	flags.StringVar(&b.measures, "measures", strings.Join(measureNames(), ","), "what to measure; pools and settings, which take long, only where they are named")
	out := ".cache/bench"
	if name == "quick" {
		out += "-quick" // otherwise it would delete what a full run has left
	}
	flags.StringVar(&b.out, "out", out, "folder for worlds and logs")
	flags.StringVar(&b.resultsDir, "results", "", "folder for the results, a file per run (default "+keptResults+")")
	flags.StringVar(&b.store.BinDir, "bin", ".cache/bin", "folder of the binaries")
	flags.DurationVar(&b.settle, "settle", 2*time.Second, "wait at rest before settled memory is read")
	flags.DurationVar(&b.patience, "patience", 0, "a run that takes longer fails (default 10m for each 5,000 nodes)")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if err := checkPods(b.pods); err != nil {
		return nil, err
	}
	if b.mode != "" && b.mode != multiPoolOnly {
		return nil, fmt.Errorf("-mode=%s: choose %s, or leave it out", b.mode, multiPoolOnly)
	}
	if name == "run" {
		if err := b.checkFsync(); err != nil {
			return nil, err
		}
	}
	for _, path := range []*string{&b.out, &b.store.BinDir} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, err
		}
		*path = abs
	}
	switch {
	case b.resultsDir != "":
	case name == "quick" || b.only != "":
		b.resultsDir = filepath.Join(b.out, "results")
	default:
		b.resultsDir = keptResults
	}
	if b.patience == 0 {
		b.patience = 10 * time.Minute * time.Duration(1+(b.nodes-1)/fullSize)
	}
	b.store.Dir, b.store.Say, b.store.Settle = b.out, b.say, settle
	b.results = newResults(b.began, "bench "+strings.Join(append([]string{name}, args...), " "), b.nodes)
	return b, os.MkdirAll(b.out, 0o755)
}

// checkFsync refuses -fsync for measures whose results with it no table would show.
func (b *bench) checkFsync() error {
	refused := slices.DeleteFunc(strings.Split(b.measures, ","), b.hasTables)
	if !b.fsync || len(refused) == 0 {
		return nil
	}
	shown := slices.DeleteFunc(append(measureNames(), "settings"), func(name string) bool { return !b.hasTables(name) })
	return fmt.Errorf("-fsync: no table would show the results of %s with it; choose from -measures=%s", strings.Join(refused, ", "), strings.Join(shown, ","))
}

// hasTables reports whether the report has tables for variants of a measure of -measures.
func (b *bench) hasTables(name string) bool {
	if name == "settings" {
		return b.mode == ""
	}
	measures := b.measuresOf(name)
	for _, m := range measures {
		if !slices.ContainsFunc(tables(), func(t table) bool { return strings.HasPrefix(m.name+separator, t.measure+separator) }) {
			return false
		}
	}
	return len(measures) > 0
}

func (b *bench) say(format string, args ...any) {
	fmt.Printf("%6.0fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// save writes the results so far, so that an interrupted run is not lost.
func (b *bench) save() error {
	b.results.Took = time.Since(b.began)
	return b.results.save(b.resultsDir)
}
