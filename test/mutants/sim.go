package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
)

// simOptions limit the simulator's search.
type simOptions struct {
	seeds, steps int
	traits       string // that worlds may have
}

// catch runs the simulator, with additional arguments, until a seed breaks a rule. It runs one
// seed at a time, so that the reported seed is the first.
func (o simOptions) catch(more ...string) func(ctx context.Context, pkg, program, mutant string) (string, error) {
	return func(ctx context.Context, _, program, mutant string) (string, error) {
		return o.run(ctx, program, mutant, more)
	}
}

func (o simOptions) run(ctx context.Context, program, mutant string, more []string) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, longHang)
	defer cancel()
	args := []string{fmt.Sprintf("-seeds=%d", o.seeds), fmt.Sprintf("-steps=%d", o.steps), "-traits=" + o.traits, "-shrink=0s", "-workers=1"}
	out, failed, err := command(bounded, "", mutant, program, append(args, more...)...)
	switch {
	case bounded.Err() != nil && ctx.Err() == nil:
		return "hangs", nil
	case err != nil || !failed:
		return "", err
	}
	return brokenRule(out)
}

// brokenRule returns the rule that broke and its seed, from the simulator's output.
func brokenRule(out []byte) (string, error) {
	if m := regexp.MustCompile(`(?m)^FAILED seed (\d+).*\n\s*(rule \d+|[^\n:]{1,40})`).FindSubmatch(out); m != nil {
		return fmt.Sprintf("%s at seed %s", m[2], m[1]), nil
	}
	if m := regexp.MustCompile(`(?m)^FAILED: (\d+ pods were not restored)`).FindSubmatch(out); m != nil {
		return string(m[1]), nil
	}
	if bytes.Contains(out, []byte("FAILED: too little")) {
		return "nothing happens", nil
	}
	return "", fmt.Errorf("the simulator failed, and no rule did:\n%s", out)
}
