// Changes tries every change of a spec, in the manner of Acto (Gu et al., SOSP 2023): for
// each field of the CRDs' schemas, values that are right and values that are wrong, in
// several states of a simulated cluster, to the changed spec and back, on several paths.
// The operator's own reconcile code runs in the simulated cluster of test/sim/world.
//
// Where a path ends must not depend on the path, and nothing wrong may be accepted
// silently: the CRD refuses it by a message that names the field, or a condition names
// it. Changes exits with 1 if not, and if a field has no change.
//
// Only it finds a field that the operator goes by on the way in and not on the way back,
// and a value that is wrong and that nothing says is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/changes/schema"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

type options struct {
	states  []state
	part    int
	workers int
	replay  string
}

func main() {
	world.HushKills()
	os.Exit(run(os.Args[1:], os.Stdout))
}

func run(args []string, out io.Writer) int {
	o, err := parse(args, out)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(out, err)
		}
		return 2
	}
	k, err := readKinds()
	if err != nil {
		fmt.Fprintln(out, "FAILED", err)
		return 1
	}
	if o.replay != "" {
		return k.replay(o.replay, out)
	}
	debug.SetGCPercent(400) // worlds are made and dropped all the time
	return k.explore(o, out)
}

func parse(args []string, out io.Writer) (options, error) {
	o := options{}
	f := flag.NewFlagSet("changes", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() {
		fmt.Fprint(out, "Usage: changes [flags]\n\nTries every change of a PodIPPool's and a PodIPBlock's spec in several states of a cluster.\n"+
			"Exits with 1 if one is accepted silently though it is wrong, or ends otherwise on another path,\nand with 2 if the command line is wrong.\n\nStates:\n")
		for _, s := range states() {
			fmt.Fprintf(out, "  %-12s %s\n", s.name, s.about)
		}
		fmt.Fprint(out, "Paths:\n")
		for _, p := range paths() {
			fmt.Fprintf(out, "  %-12s %s\n", p.name, p.about)
		}
		fmt.Fprint(out, "Flags:\n")
		f.PrintDefaults()
	}
	which := f.String("states", "", "comma-separated states; empty: all")
	f.IntVar(&o.part, "part", 1, "one of so many changes in each state, another one in each")
	f.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "changes at a time")
	f.StringVar(&o.replay, "replay", "", "print what happens in one run, named STATE/CHANGE/PATH as in a finding")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.part < 1 {
		return o, errors.New("-part is 1 or more")
	}
	for _, s := range states() {
		if *which == "" || slices.Contains(strings.Split(*which, ","), s.name) {
			o.states = append(o.states, s)
		}
	}
	if len(o.states) == 0 {
		return o, fmt.Errorf("no state %q; --help lists all", *which)
	}
	return o, nil
}

// kinds are the schemas, and the changes of a block.
type kinds struct {
	pools, blocks *schema.Schema
	ofBlock       []schema.Change
}

func readKinds() (*kinds, error) {
	pools, err := schema.Of("PodIPPool")
	if err != nil {
		return nil, err
	}
	blocks, err := schema.Of("PodIPBlock")
	if err != nil {
		return nil, err
	}
	ofBlock, err := blocks.Changes(schema.BlockExample(), schema.BlockExample(), schema.BlockValues())
	return &kinds{pools, blocks, ofBlock}, err
}

func (k *kinds) of(s *state) ([]trial, error) {
	changes, err := k.pools.Changes(s.from(), schema.PoolExample(), schema.PoolValues())
	return s.trials(changes), err
}

// sum is what was tried in a state, or in all states.
type sum struct {
	changes, tried, refused, oneWay, runs int
	findings                              []string
}

func (s *sum) add(r result) {
	s.tried++
	s.runs += r.runs
	if r.refused {
		s.refused++
	}
	if r.oneWay {
		s.oneWay++
	}
	s.findings = append(s.findings, r.findings...)
}

// explore tries the changes of the chosen states and prints a table.
func (k *kinds) explore(o options, out io.Writer) int {
	fmt.Fprintf(out, "%-14s %8s %8s %9s %8s %8s %8s\n", "state", "changes", "tried", "accepted", "one way", "runs", "seconds")
	var all sum
	for i := range o.states {
		begin := time.Now()
		s, err := k.tryAll(&o.states[i], o, i)
		if err != nil {
			fmt.Fprintln(out, "FAILED", err)
			return 1
		}
		fmt.Fprintf(out, "%-14s %8d %8d %9d %8d %8d %8.1f\n", o.states[i].name, s.changes, s.tried, s.tried-s.refused, s.oneWay, s.runs, time.Since(begin).Seconds())
		for _, line := range s.findings {
			fmt.Fprintln(out, "FAILED", strings.ReplaceAll(line, "\n", " "))
		}
		all.changes, all.tried, all.runs = all.changes+s.changes, all.tried+s.tried, all.runs+s.runs
		all.findings = append(all.findings, s.findings...)
	}
	fields := len(k.pools.Fields()) + len(k.blocks.Fields())
	if len(all.findings) > 0 {
		fmt.Fprintf(out, "%d findings in %d of %d changes of %d fields, in %d runs\n", len(all.findings), all.tried, all.changes, fields, all.runs)
		return 1
	}
	fmt.Fprintf(out, "%d of %d changes of %d fields covered, in %d runs, no finding\n", all.tried, all.changes, fields, all.runs)
	return 0
}

// tryAll tries all changes of a state, or some of them.
func (k *kinds) tryAll(s *state, o options, turn int) (sum, error) {
	trials, err := k.of(s)
	if err != nil {
		return sum{}, err
	}
	still := s.play(k.pools, s.first, []stop{{spec: s.from()}, {spec: s.from()}}, nil)
	if len(still.findings) > 0 || still.end == nil {
		return sum{}, fmt.Errorf("%s without a change: %v %v", s.name, still.findings, still.refused)
	}
	all := sum{changes: len(trials) + len(k.ofBlock)}
	var chosen []int
	for i := range all.changes {
		if (i+turn)%o.part == 0 {
			chosen = append(chosen, i)
		}
	}
	results := make([]result, len(chosen))
	_ = harness.Parallel(context.Background(), len(chosen), max(1, o.workers), func(_ context.Context, at int) error {
		if i := chosen[at]; i < len(trials) {
			results[at] = trials[i].try(k.pools, still)
		} else {
			results[at] = s.tryBlock(k.pools, k.blocks, k.ofBlock[i-len(trials)], i+1, still)
		}
		return nil
	})
	for _, r := range results {
		all.add(r)
	}
	return all, nil
}

func tracer(out io.Writer) func(string) { return func(line string) { fmt.Fprintln(out, line) } }

// report prints the result of a run and returns the exit code.
func report(c course, of schema.Change, out io.Writer) int {
	fmt.Fprintln(out, of, c.refused)
	for _, line := range c.findings {
		fmt.Fprintln(out, "FAILED", line)
	}
	return min(1, len(c.findings))
}

// replay prints what happens in one run.
func (k *kinds) replay(name string, out io.Writer) int {
	parts := strings.Split(name, "/")
	for _, s := range states() {
		trials, err := k.of(&s)
		if len(parts) != 3 || s.name != parts[0] || err != nil {
			continue
		}
		number, err := strconv.Atoi(parts[1])
		if i := number - 1 - len(trials); err == nil && i >= 0 && i < len(k.ofBlock) && parts[2] == pinnedPath {
			return report(s.pinned(k.pools, k.ofBlock[i], tracer(out)), k.ofBlock[i], out)
		}
		if err != nil || number < 1 || number > len(trials) {
			continue
		}
		for _, p := range paths() {
			if p.name == parts[2] {
				return report(trials[number-1].run(p, k.pools, tracer(out)), trials[number-1].Change, out)
			}
		}
	}
	fmt.Fprintf(out, "a run is named STATE/CHANGE/PATH, as in a finding, not %q\n", name)
	return 2
}
