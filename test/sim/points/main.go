// Points injects one fault at every point of a set of reference scenarios: at each
// write of the operator, each event that a watch shows it, and each step of an agent.
// The operator's own reconcile code runs in the simulated cluster of test/sim/world.
// Every run must reach the end of its scenario and break no rule. Points exits with 1
// if one does not.
//
// Only it finds a fault that needs one particular write, event or cache to go wrong,
// and shows that none was left out.
//
// The faults are the patterns of Sieve (Sun et al., OSDI 2022): intermediate states,
// stale states and unobserved states.
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
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

type options struct {
	scenarios []scenario
	faults    []fault
	workers   int
	replay    string
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
	if o.replay != "" {
		return replay(o.replay, out)
	}
	debug.SetGCPercent(400) // worlds are made and dropped all the time
	return explore(o, out)
}

func parse(args []string, out io.Writer) (options, error) {
	o := options{}
	f := flag.NewFlagSet("points", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() {
		fmt.Fprintf(out, `Usage: points [flags]

Runs each scenario once without a fault and counts its points, then once for each point
and each fault that is possible there. Prints a table, and each run that broke a rule or
did not reach the end of its scenario. Exits with 1 if there was one, and with 2 if the
command line is wrong.

Scenarios:
%s
Faults:
%s
Flags:
`, listOf(scenarios(), func(s scenario) string { return fmt.Sprintf("%-20s %s", s.name, s.about) }),
			listOf(faults(), func(f fault) string { return fmt.Sprintf("%-20s %s", f.name, f.about) }))
		f.PrintDefaults()
	}
	which := f.String("scenarios", "", "comma-separated scenarios; empty: all")
	some := f.String("faults", "", "comma-separated faults; empty: all")
	f.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "number of runs at a time")
	f.StringVar(&o.replay, "replay", "", "print what happens in one run, named SCENARIO/FAULT/POINT as in a finding")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.scenarios, err = choose("scenario", *which, scenarios(), func(s scenario) string { return s.name }); err != nil {
		return o, err
	}
	o.faults, err = choose("fault", *some, faults(), func(f fault) string { return f.name })
	return o, err
}

func listOf[T any](all []T, line func(T) string) string {
	var b strings.Builder
	for _, one := range all {
		fmt.Fprintln(&b, " ", line(one))
	}
	return b.String()
}

// choose returns the elements that a comma-separated list names.
func choose[T any](what, list string, all []T, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	var out []T
next:
	for _, want := range strings.Split(list, ",") {
		for _, one := range all {
			if name(one) == want {
				out = append(out, one)
				continue next
			}
		}
		return nil, fmt.Errorf("no %s %q; --help lists all", what, want)
	}
	return out, nil
}

// explore runs every point of the chosen scenarios and prints a table.
func explore(o options, out io.Writer) int {
	fmt.Fprintf(out, "%-22s %7s %7s %7s %9s %8s\n", "scenario", "writes", "events", "steps", "points", "seconds")
	total, findings := 0, 0
	for _, s := range o.scenarios {
		begin := time.Now()
		base := play(point{scenario: s}, nil)
		runs := pointsOf(s, o.faults, base.met)
		found := base.findings()
		if len(found) == 0 {
			found = runAll(runs, o.workers)
		}
		fmt.Fprintf(out, "%-22s %7d %7d %7d %9d %8.1f\n", s.name, base.met.number[atWrite], base.met.number[atEvent], base.met.number[atAgent], len(runs), time.Since(begin).Seconds())
		for _, line := range found {
			fmt.Fprintln(out, "FAILED", line)
		}
		total, findings = total+len(runs), findings+len(found)
	}
	if findings > 0 {
		fmt.Fprintf(out, "%d findings at %d points\n", findings, total)
		return 1
	}
	fmt.Fprintf(out, "%d of %d points covered, no finding\n", total, total)
	return 0
}

// runAll plays every point and returns the findings in the order of the points.
func runAll(all []point, workers int) []string {
	found := make([][]string, len(all))
	_ = harness.Parallel(context.Background(), len(all), max(1, workers), func(_ context.Context, i int) error {
		found[i] = play(all[i], nil).findings()
		return nil
	})
	var out []string
	for _, lines := range found {
		out = append(out, lines...)
	}
	return out
}

func replay(name string, out io.Writer) int {
	p, err := parsePoint(name)
	if err != nil {
		fmt.Fprintln(out, err)
		return 2
	}
	r := play(p, func(line string) { fmt.Fprintln(out, line) })
	for _, line := range r.findings() {
		fmt.Fprintln(out, "FAILED", line)
	}
	return min(1, len(r.findings()))
}
