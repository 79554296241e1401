// Model explores every state of the model of the address protocol, in small but complete
// instances, and prints whether the rules hold and whether all goals are reached.
// It exits with 1 on a finding.
//
// Only this suite shows that no order of steps, however long, breaks a rule, and that no
// demand and no drain waits forever; for the protocol as modelled, not for the code.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/model/explore"
	"github.com/cilium-pool/cilium-pool-operator/test/model/protocol"
)

const usage = `Usage: model [-rows=NAME,...] [-story]

Explores the model of the address protocol (test/model/protocol) and prints a row for
each instance: its nodes, blocks, addresses in each block, and leaders; how many states
and transitions there are, and how many steps lead to the farthest state; whether the
rules hold; whether every demand that can be met is met, every drain that can finish
finishes, and writes come to an end. Agents and leaders crash at any time, any number of
times.

Of instances in which a guard is switched off, and of known limits, the row says what
is found broken, and that must be found: "expected".

  go run ./test/model -rows=agent-window -story   how a pod is lost, step by step
  go run ./test/model -rows=without-fence -story  what the fence is for

Exit codes: 0 as expected, 1 a finding, 2 wrong usage.

`

// mostStates ends an exploration, at about 30 bytes each: a finding, as the rest is not known.
const mostStates = 60_000_000

// The columns of a table.
const (
	heading = "%-34s  %-7s  %10s  %11s  %5s  %7s  %-6s  %s\n"
	cells   = "%-34s  %d %d %d %d  %10d  %11d  %5d  %7.1f  %-6s  %s\n"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

func run(args []string, out io.Writer) int {
	f := flag.NewFlagSet("model", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() {
		fmt.Fprint(out, usage)
		f.PrintDefaults()
	}
	names := f.String("rows", "", "only these rows, separated by commas")
	story := f.Bool("story", false, "print what is found broken as a numbered story")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case f.NArg() > 0:
		fmt.Fprintf(out, "unexpected argument %q\n", f.Arg(0))
		return 2
	}
	chosen := allRows()
	if *names != "" {
		wanted := strings.Split(*names, ",")
		chosen = slices.DeleteFunc(chosen, func(r row) bool { return !slices.Contains(wanted, r.name) })
		if len(chosen) != len(wanted) {
			fmt.Fprintf(out, "no such row in %q; there are", *names)
			for _, r := range allRows() {
				fmt.Fprintf(out, " %s", r.name)
			}
			fmt.Fprintln(out)
			return 2
		}
	}
	debug.SetGCPercent(25) // states hold no pointers: garbage collection is cheap
	return report(chosen, *story, out)
}

// report explores all rows, prints them, and returns the exit code.
func report(chosen []row, story bool, out io.Writer) int {
	begun, findings, title := time.Now(), 0, ""
	for _, r := range chosen {
		if r.section != title {
			title = r.section
			fmt.Fprintf(out, "\n%s\n", title)
			fmt.Fprintf(out, heading, "instance", "n b a l", "states", "transitions", "depth", "seconds", "rules", "progress")
		}
		x := explored(r, mostStates)
		fmt.Fprint(out, x)
		if !x.asExpected() {
			findings++
		}
		if story || !x.asExpected() {
			x.tell(out)
		}
	}
	fmt.Fprintf(out, "\nn: nodes, b: blocks, a: addresses in each block, l: leaders. %.0f s, %d MiB.\n", time.Since(begun).Seconds(), memory())
	if findings > 0 {
		fmt.Fprintf(out, "FAILED: %d findings\n", findings)
		return 1
	}
	return 0
}

// memory returns the memory that this process has obtained from the system, in MiB.
func memory() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys >> 20
}

// result is a finished exploration.
type result struct {
	row
	graph *explore.Graph[protocol.Key, protocol.Action]
	stuck []explore.Stuck[protocol.Key, protocol.Action]
	took  time.Duration
}

func explored(r row, limit int) *result {
	begun := time.Now()
	m, err := protocol.New(r.config)
	if err != nil {
		panic(err)
	}
	x := &result{row: r, graph: explore.Explore(m.System(!r.progress), limit)}
	if r.progress && x.graph.Complete {
		x.stuck = x.graph.Progress(m.Fairness, m.Goals())
		if s, found := x.graph.Settles(protocol.Settled, m.Fairness, protocol.Writes); found {
			x.stuck = append(x.stuck, s)
		}
	}
	x.took = time.Since(begun)
	return x
}

// found returns the broken rule, or the first goal that can stay unmet.
func (x *result) found() string {
	if x.graph.Broken == "" && len(x.stuck) > 0 {
		return x.stuck[0].Goal
	}
	return x.graph.Broken
}

// asExpected reports whether every state was explored, and exactly the expected rule or goal broke.
func (x *result) asExpected() bool {
	if x.expect == "" {
		return x.graph.Complete && x.found() == ""
	}
	if x.graph.Broken != "" {
		return x.graph.Broken == x.expect
	}
	for _, s := range x.stuck {
		if strings.HasPrefix(s.Goal, x.expect) {
			return true
		}
	}
	return false
}

// String formats the result as a row of the table.
func (x *result) String() string {
	c, g := x.config, x.graph
	expected := ": BROKEN"
	if x.expect != "" && x.asExpected() {
		expected = ": broken, as expected"
	}
	rules, progress := "ok", "-"
	switch {
	case g.Broken != "":
		rules = g.Broken + expected
	case !g.Complete:
		rules = "NOT ALL EXPLORED"
	case x.progress && len(x.stuck) == 0:
		progress = "ok"
	case x.progress:
		progress = cmp.Or(x.matching(), x.stuck[0].Goal) + expected
	}
	return fmt.Sprintf(cells, x.name, c.Nodes, c.Blocks, c.Addresses, c.Leaders,
		g.States(), g.Transitions, g.Depth, x.took.Seconds(), rules, progress)
}

// matching returns the goal that must stay unmet, if it does.
func (x *result) matching() string {
	for _, s := range x.stuck {
		if x.expect != "" && strings.HasPrefix(s.Goal, x.expect) {
			return s.Goal
		}
	}
	return ""
}

// tell prints the story of the finding.
func (x *result) tell(out io.Writer) {
	fmt.Fprintf(out, "\n%s: %s\n", x.name, x.about)
	number := 0
	steps := func(all []explore.Step[protocol.Key, protocol.Action]) {
		for _, s := range all {
			number++
			fmt.Fprintf(out, "%3d. %s\n", number, s.Action)
		}
	}
	steps(x.graph.Story)
	if x.graph.Broken != "" {
		fmt.Fprintf(out, "     This breaks rule %s.\n", x.graph.Broken)
	}
	for _, s := range x.stuck {
		if want := x.matching(); want != "" && s.Goal != want {
			continue
		}
		number = 0
		steps(s.Story)
		if len(s.Loop) == 0 {
			fmt.Fprintf(out, "     Nothing else happens, and this stays unmet: %s.\n", s.Goal)
			continue
		}
		fmt.Fprintf(out, "     From here the same comes again and again, and this stays unmet: %s.\n", s.Goal)
		steps(s.Loop)
	}
	fmt.Fprintln(out)
}
