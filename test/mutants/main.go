// Command mutants plants known faults in the operator's code, one at a time, and reports which
// check catches each. A fault that no check catches is a finding: a test is missing, or a guard has
// no effect.
//
// The faults are in list, one file per package. They are planted by Go's build overlay: no
// file of the checkout is touched.
//
// Only this suite finds faults that all the other suites overlook.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// options are the command-line options.
type options struct {
	run    *regexp.Regexp
	files  []string // nil: all
	checks []string
	all    bool
	key    bool
	// protocol selects only mutants with a step that the model of the protocol does not have.
	protocol bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := exitCode(run(ctx, os.Args[1:]))
	stop()
	os.Exit(code)
}

var errSurvived = errors.New("a mutant survived")

func exitCode(err error) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errSurvived):
		return 1
	}
	fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
	return 2
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	code, err := readCode(".")
	if err != nil {
		return err
	}
	mutants, err := readMutants(".", code)
	if err != nil {
		return err
	}
	chosen := o.choose(mutants)
	switch {
	case len(chosen) == 0 && o.files != nil:
		fmt.Println("no mutant changes any of these files")
		return nil
	case len(chosen) == 0:
		return fmt.Errorf("no mutant is like %q", o.run)
	}
	checks, err := checksOf(o)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := weave(".", dir, code, chosen)
	if err != nil {
		return err
	}
	return newRunner(builder{".", dir, overlay}, checks, o.all).runAll(ctx, chosen)
}

func (o options) choose(all []mutant) []mutant {
	var chosen []mutant
	for _, m := range all {
		named := o.run.MatchString(m.Name) || slices.ContainsFunc(m.files(), o.run.MatchString)
		touched := o.files == nil || slices.ContainsFunc(m.files(), func(f string) bool { return slices.Contains(o.files, f) })
		if named && touched && (m.Key || !o.key) && (m.Protocol || !o.protocol) {
			chosen = append(chosen, m)
		}
	}
	return chosen
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	pattern := flags.String("run", "all", "only mutants whose name or file matches this regular expression")
	files := flags.String("files", "all", "only mutants of these comma-separated files; empty: none")
	checks := flags.String("checks", "unit,controller,scripts,sim,integration", "the checks to try, in this order")
	flags.BoolVar(&o.all, "all-checks", false, "try every check on every mutant, not only until one catches it")
	flags.BoolVar(&o.key, "key", false, "only the key guards")
	flags.BoolVar(&o.protocol, "protocol", false, "only those of the address protocol, which the check mapping is measured by")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *pattern == "all" {
		*pattern = ""
	}
	if *files != "all" {
		o.files = strings.Split(*files, ",")
	}
	var err error
	if o.run, err = regexp.Compile(*pattern); err != nil {
		return o, fmt.Errorf("-run: %w", err)
	}
	o.checks = strings.Split(*checks, ",")
	return o, nil
}
