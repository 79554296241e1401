package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// runner tries checks on mutants, one after the other.
type runner struct {
	builder builder
	checks  []check
	all     bool
	sound   map[string]bool // checks that passed without a mutant
	caught  map[string]int  // number of mutants that each check caught
	tried   map[string]int
}

func newRunner(b builder, checks []check, all bool) *runner {
	return &runner{builder: b, checks: checks, all: all,
		sound: map[string]bool{}, caught: map[string]int{}, tried: map[string]int{}}
}

// runAll prints a line for each mutant as it is tried, and a summary.
func (r *runner) runAll(ctx context.Context, mutants []mutant) error {
	start := time.Now()
	fmt.Printf("%-34s %-7s %-90s %6s  %s\n", "MUTANT", "RULE", "FAULT", "TIME", "CAUGHT BY")
	var survivors []string
	for _, m := range mutants {
		began := time.Now()
		by, err := r.try(ctx, m)
		if err != nil {
			return fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		if len(by) == 0 {
			survivors = append(survivors, m.Name)
			by = []string{"SURVIVED"}
		}
		fmt.Printf("%-34s %-7s %-90s %5.1fs  %s\n", m.Name, m.Rule, m.Fault, time.Since(began).Seconds(), strings.Join(by, ", "))
	}
	fmt.Printf("\n%d planted, %d caught, in %s.", len(mutants), len(mutants)-len(survivors), time.Since(start).Round(time.Second))
	for _, c := range r.checks {
		fmt.Printf(" %s: %d of %d.", c.name, r.caught[c.name], r.tried[c.name])
	}
	fmt.Println()
	if len(survivors) > 0 {
		fmt.Printf("survived: %s\n", strings.Join(survivors, " "))
		return errSurvived
	}
	return nil
}

// try returns the checks that caught a mutant: the first, or all.
func (r *runner) try(ctx context.Context, m mutant) ([]string, error) {
	var by []string
	for _, c := range r.checks {
		pkg := c.of(m)
		if pkg == "" {
			continue
		}
		program, err := r.builder.program(ctx, pkg)
		if err != nil {
			return nil, err
		}
		if err := r.checkSound(ctx, c, pkg, program); err != nil {
			return nil, err
		}
		r.tried[c.name]++
		what, err := c.catch(ctx, pkg, program, m.Name)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", c.name, err)
		}
		if what == "" {
			continue
		}
		r.caught[c.name]++
		by = append(by, c.name+" "+what)
		if !r.all {
			break
		}
	}
	return by, nil
}

// checkSound returns an error if a check fails without a mutant: such a check proves nothing about
// mutants.
func (r *runner) checkSound(ctx context.Context, c check, pkg, program string) error {
	key := c.name + " " + pkg
	if r.sound[key] {
		return nil
	}
	what, err := c.catch(ctx, pkg, program, "")
	if err != nil {
		return fmt.Errorf("check %s with nothing planted: %w", c.name, err)
	}
	if what != "" {
		return fmt.Errorf("check %s fails with nothing planted: %s", c.name, what)
	}
	r.sound[key] = true
	return nil
}
