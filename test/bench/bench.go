package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// mostNodes have room in bed.PoolCIDR for three blocks each.
const mostNodes = 40_000

// bench is one run of the benchmark.
type bench struct {
	quick           bool // count only, without comparisons
	nodes, rounds   int
	peers           bool
	measures        []measure
	out, resultsDir string
	store           *bed.Store
	command         string
	began           time.Time
	samples         []sample
}

// newBench reads the command line, which begins with run or quick.
func newBench(args []string) (*bench, error) {
	b := &bench{began: time.Now(), quick: args[0] == "quick", command: "bench " + strings.Join(args, " "), store: &bed.Store{}}
	flags := flag.NewFlagSet("bench "+args[0], flag.ContinueOnError)
	flags.IntVar(&b.nodes, "nodes", 5000, "number of nodes")
	flags.IntVar(&b.rounds, "rounds", 3, "rounds of every measure of bench run, in which contenders alternate")
	flags.BoolVar(&b.peers, "peers", true, "let bench run start cilium-operator too")
	names := flags.String("measures", "", "measures, separated by commas; all if empty")
	out := ".cache/bench"
	if b.quick {
		out += "-quick"
	}
	flags.StringVar(&b.out, "out", out, "folder for worlds and logs")
	flags.StringVar(&b.resultsDir, "results", "", "folder for the results (default .run/bench, of bench quick the folder of -out)")
	flags.StringVar(&b.store.BinDir, "bin", ".cache/bin", "folder of the binaries")
	if err := flags.Parse(args[1:]); err != nil {
		return nil, err
	}
	if b.nodes < 2 || b.nodes > mostNodes || b.rounds < 1 {
		return nil, fmt.Errorf("-nodes=%d -rounds=%d: choose 2 to %d nodes, and a round or more", b.nodes, b.rounds, mostNodes)
	}
	if b.quick {
		b.rounds, b.peers = 1, false
	}
	if err := b.choose(*names); err != nil {
		return nil, err
	}
	for _, path := range []*string{&b.out, &b.store.BinDir} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, err
		}
		*path = abs
	}
	if b.resultsDir == "" {
		b.resultsDir = ".run/bench"
		if b.quick {
			b.resultsDir = b.out
		}
	}
	b.store.Dir, b.store.Say, b.store.Settle = b.out, b.say, settle
	if b.peers {
		b.store.Install = installCilium
	}
	return b, nil
}

// choose selects the measures by name.
func (b *bench) choose(names string) error {
	b.measures = compared(b.peers)
	if b.quick {
		b.measures = append(b.measures, counted()...)
		for i := range b.measures {
			m := &b.measures[i]
			m.contenders = slices.DeleteFunc(m.contenders, contender.isFloor)
		}
	}
	if names == "" {
		return nil
	}
	var all []string
	for _, m := range b.measures {
		all = append(all, m.name)
	}
	chosen := strings.Split(names, ",")
	for _, name := range chosen {
		if !slices.Contains(all, name) {
			return fmt.Errorf("-measures=%s: choose from %s", names, strings.Join(all, ","))
		}
	}
	b.measures = slices.DeleteFunc(b.measures, func(m measure) bool { return !slices.Contains(chosen, m.name) })
	return nil
}

// run runs all measures. It saves the results after each one, so that an interrupted run is
// not lost.
func (b *bench) run(ctx context.Context) error {
	for _, dir := range []string{"worlds", "run"} {
		if err := os.RemoveAll(filepath.Join(b.out, dir)); err != nil {
			return err
		}
	}
	var wrong []error
	for _, m := range b.measures {
		for round := range b.rounds {
			first := round % len(m.contenders) // others begin in other rounds
			for _, c := range slices.Concat(m.contenders[first:], m.contenders[:first]) {
				s, err := b.once(ctx, m, c, round)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", m.name, c.name, err)
				}
				b.samples = append(b.samples, s)
				if b.quick {
					wrong = append(wrong, failures(m, c, s)...)
				}
			}
		}
		if err := b.save(); err != nil {
			return err
		}
	}
	if b.quick {
		wrong = append(wrong, allocations())
	}
	b.say("results are in %s", b.resultsDir)
	return errors.Join(wrong...)
}

// save writes the results: all samples, and the tables from them.
func (b *bench) save() error {
	data, err := json.MarshalIndent(b.samples, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.resultsDir, 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(b.resultsDir, "results.json"), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(b.resultsDir, "report.md"), []byte(b.report()), 0o644))
}

func (b *bench) say(format string, args ...any) {
	fmt.Printf("%6.0fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}
