package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

const (
	// patience is how long the demo waits for what it expects.
	patience = 5 * time.Minute
	poll     = 200 * time.Millisecond
)

// story is one run of the demo.
type story struct {
	*stage
	*printer
	fleet   *fleet
	checker *invariant.Checker
	names   []string // of all nodes
	peaks   peaks
	// failedWithout counts the CNI ADDs that failed as there was no operator.
	failedWithout int64
	failures      []string
}

// options of the commands.
type options struct {
	binDir, runDir, examples string
	nodes                    int
}

// tellStory runs the demo and says whether everything came as it should.
func tellStory(ctx context.Context, o options, p *printer) (ok bool, err error) {
	p.heading("Control plane and operator",
		"etcd, kube-apiserver and the operator run as processes of their own; nothing else is real:",
		"agents and kubelets are simulated in this process, after pkg/ipam/crd.go of Cilium v1.20.1.")
	stage, err := build(ctx, o.binDir, filepath.Join(o.runDir, "demo"), false, p.note)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer func() {
		cancel()
		parts.Wait()
		err = errors.Join(err, stage.strike())
	}()
	s := &story{stage: stage, printer: p}
	if s.fleet, err = newFleet(stage.cluster.Config()); err != nil {
		return false, err
	}
	s.checker, err = invariant.Watch(ctx, stage.cluster.Config(), invariant.Options{
		Cooldown: cooldown, Agents: s.fleet.addresses, OnChange: func(c invariant.Change) {
			s.peaks.see(c)
			narrator{printer: p}.tell(c)
		},
	})
	if err != nil {
		return false, err
	}
	parts.Go(func() { s.fleet.run(ctx) })
	p.note("operator started, pid %d, log %s", stage.operator.PID(), filepath.Join(stage.dir, operatorName+".log"))
	if err := s.waves(ctx, o); err != nil {
		return false, err
	}
	if err := s.finish(ctx); err != nil {
		return false, err
	}
	return len(s.failures) == 0, nil
}

// until waits until the cluster looks as it should. That it does not within
// time is a failed expectation; an error ends the demo.
func (s *story) until(ctx context.Context, what string, holds func(*sight) bool) error {
	begin := time.Now()
	for {
		seen, err := s.look(ctx)
		if err != nil {
			return err
		}
		if holds(seen) {
			took := time.Since(begin).Seconds()
			if err := s.checker.Sync(ctx); err != nil { // what led to it is told first
				return err
			}
			s.expect(true, "%s, after %.1f s", what, took)
			return nil
		}
		if time.Since(begin) > patience {
			s.expect(false, "%s, within %s", what, patience)
			return nil
		}
		if !s.operator.Running() {
			return fmt.Errorf("the operator ended by itself; its log ends:\n%s", s.operator.LogTail())
		}
		if err := wait(ctx, poll); err != nil {
			return err
		}
	}
}

// expect notes whether something came as it should.
func (s *story) expect(ok bool, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if ok {
		s.event(bold, "", "✓ %s", what)
		return
	}
	s.failures = append(s.failures, "expected: "+what)
	s.event(red, "", "✗ %s", what)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// allRunning says that every pod has its address.
func allRunning(s *sight) bool { return s.waiting == 0 }
