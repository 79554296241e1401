// Sim runs seeded random worlds around the operator's reconcile code, and holds each to the rules
// after every step. It exits with 1 where a rule broke, or where too little was tried to say
// anything.
//
// Only it finds rare orders of many faults, in thousands of worlds a minute.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// options are the command-line flags.
type options struct {
	seeds   int
	from    uint64
	steps   int
	workers int
	faults  world.Faults
	profile profile         // "": of each seed its own
	traits  traits          // those that seeds may have
	mode    ciliumnode.Mode // "": of each seed its own
	verbose bool
	// modelAlone: only the model judges, and worlds have no feature that the model lacks.
	modelAlone bool
	replay     string
	shrink     time.Duration
}

func main() {
	world.HushKills()
	os.Exit(run(os.Args[1:], os.Stdout))
}

func run(args []string, out io.Writer) int {
	o, err := parse(args, out)
	if err != nil {
		fmt.Fprintln(out, err)
		return 2
	}
	switch {
	case o.replay != "":
		return replay(o.replay, out)
	case o.verbose:
		return tell(play(o.originOf(o.from), o.steps, o.faults, tracer(out)), out)
	}
	return search(o, out)
}

func parse(args []string, out io.Writer) (options, error) {
	o := options{}
	f := flag.NewFlagSet("sim", flag.ContinueOnError)
	f.SetOutput(out)
	f.IntVar(&o.seeds, "seeds", 1000, "how many seeds")
	f.Uint64Var(&o.from, "seed", 1, "the first seed")
	f.IntVar(&o.steps, "steps", 500, "random actions of each seed, before faults end and all must come to rest")
	f.IntVar(&o.workers, "workers", runtime.NumCPU(), "seeds at a time")
	f.BoolVar(&o.verbose, "v", false, "tell what happens in one seed, action by action")
	f.StringVar(&o.replay, "replay", "", "a file of actions to replay, as a failing seed leaves one")
	f.DurationVar(&o.shrink, "shrink", 30*time.Second, "how long to look for fewer actions that break the same rule")
	faults := f.String("faults", "all", "faults that may be on, by comma: "+world.AllFaults().String())
	kind := f.String("profile", "", fmt.Sprintf("worlds of this profile only; each seed has its own: %s", profiles()))
	some := f.String("traits", "all", "traits that worlds may have, by comma: "+traits(allTraits).String())
	mode := f.String("mode", "", "worlds of this IPAM mode only; each seed has its own: crd, multi-pool, kubernetes")
	f.BoolVar(&o.modelAlone, "model-alone", false, "judge by the model of the address protocol and by nothing else, in worlds that have nothing beyond it")
	err := f.Parse(args)
	if err == nil && *mode != "" {
		o.mode, err = parseMode(*mode)
	}
	if err == nil {
		o.traits, err = parseTraits(*some)
	}
	if err == nil && *kind != "" {
		o.profile, err = parseProfile(*kind)
	}
	if err == nil && o.profile.traitless() && o.mode == ciliumnode.Kubernetes {
		err = fmt.Errorf("profile %s is not of mode %s", o.profile, o.mode)
	}
	if err != nil {
		return o, err
	}
	o.faults, err = world.ParseFaults(*faults)
	if o.modelAlone {
		if o.traits &= modelledTraits; o.mode != ciliumnode.MultiPool {
			o.mode = ciliumnode.CRD
		}
		o.faults &^= world.NodeGone | world.CiliumNodeGone | world.Torn | world.Edits | world.Restore // which the model lacks
	}
	return o, err
}

// originOf draws the values without a flag from a seed. If only one trait was requested, and few
// seeds would have it, every seed has it.
func (o options) originOf(seed uint64) origin {
	if one := o.traits & (scheduling | families | restores); one == o.traits && len(world.Each(one)) == 1 && one.in(o.mode) == one {
		return origin{seed: seed, mode: cmp.Or(o.mode, ciliumnode.CRD), profile: cmp.Or(o.profile, profileOf(seed, "")), traits: one, modelAlone: o.modelAlone}
	}
	of := origin{seed: seed, mode: cmp.Or(o.mode, modeOf(seed))}
	of.traits = ((traitsOf(seed) | apartOf(seed)) & o.traits).in(of.mode)
	of.profile, of.modelAlone = cmp.Or(o.profile, profileOf(seed, of.mode)), o.modelAlone
	return of.fit()
}

func tracer(out io.Writer) func(string) {
	return func(line string) { fmt.Fprintln(out, line) }
}

// tell prints which rules were broken and returns the exit code.
func tell(o outcome, out io.Writer) int {
	for _, v := range o.violations {
		fmt.Fprintln(out, "FAILED", v)
	}
	if len(o.violations) > 0 {
		return 1
	}
	fmt.Fprintf(out, "seed %d: no rule broke in %d actions\n", o.seed, len(o.actions))
	return 0
}

func replay(path string, out io.Writer) int {
	body, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(out, err)
		return 2
	}
	s, err := parseScript(string(body))
	if err != nil {
		fmt.Fprintf(out, "%s: %v\n", path, err)
		return 2
	}
	return tell(s.run(tracer(out)), out)
}

// search plays seeds until one fails or all are done.
func search(o options, out io.Writer) int {
	s := newSearch(o, out)
	failed := s.run()
	fmt.Fprint(out, s.figures())
	if failed != nil {
		fail(o, *failed, out)
		return 1
	}
	if s.overspent() {
		fmt.Fprintln(out, "FAILED:", s.tellLosses())
		return 1
	}
	if idle := s.idle(); len(idle) > 0 && !o.modelAlone {
		fmt.Fprintf(out, "FAILED: too little was tried to say anything. Never happened: %s\n", strings.Join(idle, ", "))
		return 1
	}
	return 0
}

// fail prints how to replay a failing seed, in as few actions as possible.
func fail(o options, bad outcome, out io.Writer) {
	fmt.Fprintf(out, "\nFAILED seed %d (%s mode, %s, traits %s, faults %s) after %d actions\n", bad.seed, bad.mode, bad.profile, bad.traits, bad.faults, len(bad.actions))
	for _, v := range bad.violations[:min(5, len(bad.violations))] {
		fmt.Fprintln(out, "  ", v)
	}
	fmt.Fprintf(out, "replay: go run ./test/sim -v -seed=%d -mode=%s -profile=%s -traits=%s -steps=%d -faults=%s -model-alone=%t\n",
		bad.seed, bad.mode, bad.profile, bad.traits, o.steps, o.faults, o.modelAlone)
	small := shrink(script{bad.origin, bad.faults, bad.actions}, bad.violations[0], o.shrink)
	path := fmt.Sprintf("%s/sim-%d.actions", os.TempDir(), bad.seed)
	if err := os.WriteFile(path, []byte(small.String()), 0o644); err != nil {
		fmt.Fprintln(out, err)
		return
	}
	fmt.Fprintf(out, "shrunk: %d actions with faults %q: go run ./test/sim -replay=%s\n", len(small.actions), small.faults, path)
}
