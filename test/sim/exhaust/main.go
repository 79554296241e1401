// Exhaust goes through everything that can happen in small worlds, to a depth:
// every order of the steps of two operators, two nodes with their agents, and a
// pool of three blocks, with the operator's own reconcile code. It exits with 1
// where a rule broke.
//
// Only it finds every short order of steps, and so shows that there is none that
// breaks a rule.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// options are the command line.
type options struct {
	scopes []string
	depth  int
	states int
	replay string
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout))
}

func run(args []string, out io.Writer) int {
	o, err := parse(args, out)
	if err != nil {
		fmt.Fprintln(out, err)
		return 2
	}
	if o.replay != "" {
		return replay(o.replay, out)
	}
	debug.SetGCPercent(400) // worlds are made and dropped all the time
	code := 0
	for _, name := range o.scopes {
		s, ok := scopeNamed(name)
		if !ok {
			fmt.Fprintf(out, "no such scope: %q; there are %s\n", name, strings.Join(names(), ", "))
			return 2
		}
		if !explore(s, o, out) {
			code = 1
		}
	}
	return code
}

func parse(args []string, out io.Writer) (options, error) {
	o := options{}
	f := flag.NewFlagSet("exhaust", flag.ContinueOnError)
	f.SetOutput(out)
	which := f.String("scopes", "", "scopes by comma; empty: all: "+strings.Join(names(), ", "))
	f.IntVar(&o.depth, "depth", 0, "how many actions in a row; 0: each scope's own")
	f.IntVar(&o.states, "states", 5_000_000, "stop a scope after this many states, about 100 bytes each; 0: never")
	f.StringVar(&o.replay, "replay", "", "a file of actions to replay, as a violation leaves one")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.scopes = names()
	if *which != "" {
		o.scopes = strings.Split(*which, ",")
	}
	return o, nil
}

func names() []string {
	var out []string
	for _, s := range scopes() {
		out = append(out, s.name)
	}
	return out
}

// explore searches one scope and prints what was tried. It reports whether no
// rule broke.
func explore(s scope, o options, out io.Writer) bool {
	depth := s.depth
	if o.depth > 0 {
		depth = o.depth
	}
	fmt.Fprintf(out, "%s: %s\n", s.name, s.about)
	x := newSearch(s, depth, o.states)
	last := time.Now()
	x.tick = func(done bool) {
		if done || time.Since(last) > 2*time.Second {
			last = time.Now()
			fmt.Fprintf(out, "%s: %s\n", s.name, x.figures)
		}
	}
	x.run()
	fmt.Fprintf(out, "%s: done: %s\n", s.name, x.figures)
	if x.found == nil {
		return true
	}
	fmt.Fprintf(out, "FAILED %s after %d actions: %s\n", s.name, len(x.found.actions), x.found.text)
	path := fmt.Sprintf("%s/exhaust-%s.actions", os.TempDir(), s.name)
	if err := os.WriteFile(path, []byte(script(s.name, x.found.actions)), 0o644); err != nil {
		fmt.Fprintln(out, err)
		return false
	}
	fmt.Fprintf(out, "replay: go run ./test/sim/exhaust -replay=%s\n", path)
	return false
}

func (f figures) String() string {
	end := ""
	if f.full {
		end = ", stopped at the bound on states: not exhaustive"
	}
	return fmt.Sprintf("depth %d, %d states, %d transitions, %d of them to known states, %.1f s%s",
		f.level, f.states, f.transitions, f.again, f.took.Seconds(), end)
}

// script is what replay reads.
func script(scope string, actions []world.Action) string {
	var b strings.Builder
	fmt.Fprintf(&b, "scope %s\n", scope)
	for _, a := range actions {
		fmt.Fprintln(&b, a)
	}
	return b.String()
}

// replay prints what happens in a history, action by action. An action that is not
// possible when its turn comes is reported and skipped.
func replay(path string, out io.Writer) int {
	body, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(out, err)
		return 2
	}
	first, rest, _ := strings.Cut(string(body), "\n")
	s, ok := scopeNamed(strings.TrimPrefix(first, "scope "))
	if !ok {
		fmt.Fprintf(out, "%s: it does not begin with a scope\n", path)
		return 2
	}
	w, _ := s.begin(func(line string) { fmt.Fprintln(out, line) })
	defer w.Close()
	fmt.Fprintln(out, "-- the search begins here")
	for line := range strings.Lines(rest) {
		a, err := world.ParseAction(line)
		switch {
		case err != nil:
			fmt.Fprintf(out, "%s: %v\n", path, err)
			return 2
		case !w.Can(a):
			fmt.Fprintf(out, "not possible: %s\n", a)
		default:
			w.Do(a)
		}
	}
	for _, v := range w.Violations {
		fmt.Fprintln(out, "FAILED", v)
	}
	return min(1, len(w.Violations))
}
