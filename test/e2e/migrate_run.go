//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	// blockedCode is the exit code of a command that reports an obstacle.
	blockedCode = 3
	// firstKill is the time until a command is killed first.
	// answerWait is the time that a command waits for silent agents: three
	// times as long as the bed's agents take.
	firstKill     = 100 * time.Millisecond
	answerWait    = 10 * time.Second
	answerTimeout = " --answer-timeout=10s"
)

// must runs a command line of the page, which must exit with this code.
func (e *env) must(ctx context.Context, line string, want int) error {
	out, code, err := e.Shell(ctx, line)
	if err != nil {
		return err
	}
	return e.ended(line, out, code, want)
}

// ended logs the output of a command, and returns an error if its exit code is not the
// expected one.
func (e *env) ended(line, out string, code, want int) error {
	e.logf("$ %s", line)
	for l := range strings.Lines(out) {
		e.logf("  %s", strings.TrimRight(l, "\n"))
	}
	if code != want {
		return fmt.Errorf("%s: exit code %d, not %d", line, code, want)
	}
	return nil
}

// killed does the same as must, but first kills the command with SIGKILL several times, each
// time later, together with the operator. waits is the time that the command waits before it
// acts; such a command is killed less often.
func (m *mover) killed(ctx context.Context, line string, want int, waits time.Duration) error {
	later := time.Duration(6) // fifths
	if waits > 0 {
		later = 8
	}
	for after := firstKill; ctx.Err() == nil; after = after * later / 5 {
		short, cancel := context.WithTimeout(ctx, waits+after)
		out, code, err := m.Shell(short, line)
		cancel()
		if err != nil {
			return err
		}
		if code >= 0 {
			return m.ended(line, out, code, want)
		}
		m.commandsKilled++
		if err := m.runOperator(m.flags); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// shadow restarts the operator with or without --shadow.
func (m *mover) shadow(is bool) error {
	// Nodes have few more addresses than pods: the default of 50 percent would not reclaim
	// any.
	flags := append(soon(), "--leader-elect-lease-duration=4s", "--ack-hold=10s", "--reclaim-threshold-percent=70")
	if is {
		flags = append(flags, "--shadow")
	}
	return m.runOperator(flags)
}
