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
	e.Logf("$ %s", line)
	for l := range strings.Lines(out) {
		e.Logf("  %s", strings.TrimRight(l, "\n"))
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
		if err := m.renewOperator(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// renewOperator kills the operator with SIGKILL and starts another one with the current
// flags.
func (m *mover) renewOperator() (err error) {
	m.renewing.Lock()
	defer m.renewing.Unlock()
	if m.operator != nil {
		if err := m.operator.Kill(); err != nil {
			return err
		}
	}
	m.operator, err = m.StartOperator(m.flags...)
	return err
}

// shadow restarts the operator with or without --shadow.
func (m *mover) shadow(is bool) error {
	// Nodes have few more addresses than pods: the default of 50 percent would not reclaim
	// any.
	flags := append(soon(), "--leader-elect-lease-duration=4s", "--ack-hold=10s", "--reclaim-threshold-percent=70")
	if is {
		flags = append(flags, "--shadow")
	}
	m.renewing.Lock()
	m.flags = flags
	m.renewing.Unlock()
	return m.renewOperator()
}

// keepOperator restarts the operator if it has exited by itself, as a kubelet does, until ctx
// ends: it exits if the machine is too busy to renew a short Lease.
func (m *mover) keepOperator(ctx context.Context) {
	for pause(ctx, time.Second) == nil {
		m.renewing.Lock()
		if m.operator != nil && !m.operator.Running() {
			m.Logf("the operator has ended by itself")
			var err error
			if m.operator, err = m.StartOperator(m.flags...); err != nil {
				m.Logf("%v", err)
			}
		}
		m.renewing.Unlock()
	}
}
