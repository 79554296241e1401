package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// progressFile keeps the progress of a loop, so that it can be resumed.
type progressFile struct {
	// Nodes and Faults are those of the runs; another loop has other values.
	Nodes  int
	Faults time.Duration
	Mode   mode
	Run    string
	// First is the seed of the first run, which increases by one with each run.
	First uint64
	// Done is how many runs passed; Sum is the total of their reports.
	Done int
	Sum  report
}

// loop repeats runs until count have passed, or one has failed.
type loop struct {
	settings
	runDir  string
	count   int
	restart bool
	say     func(format string, args ...any)
}

func (l loop) state() string { return filepath.Join(l.runDir, "state.json") }

func (l loop) run(ctx context.Context) error {
	p, err := l.begin()
	if err != nil {
		return err
	}
	if p.Done > 0 {
		l.say("taken up again after %d runs; RESTART=1 starts over", p.Done)
	}
	for p.Done < l.count {
		s := l.settings
		s.Seed = p.First + uint64(p.Done)
		l.say("run %d of %d: %s, seed %d, %d nodes, %s mode", p.Done+1, l.count, s.scenario().name, s.Seed, s.Nodes, s.Mode)
		r, err := run(ctx, s, filepath.Join(l.runDir, "run"), l.say)
		if err != nil {
			return l.failed(ctx, s, r, err)
		}
		p.Done++
		p.Sum.add(r)
		if err := l.save(p); err != nil {
			return err
		}
		l.say("run %d of %d passed after %.0f s", p.Done, l.count, r.Seconds)
	}
	p.Sum.print(os.Stdout)
	return nil
}

// begin resumes a loop, or starts a new one.
func (l loop) begin() (*progressFile, error) {
	fresh := &progressFile{Nodes: l.Nodes, Faults: l.Faults, Mode: l.Mode, Run: l.Run, First: l.Seed}
	if fresh.First == 0 {
		fresh.First = uint64(time.Now().UnixNano()) % 1e9 * 1000
	} else if l.count == 1 {
		return fresh, nil // a single run with a given seed
	}
	data, err := os.ReadFile(l.state())
	if errors.Is(err, fs.ErrNotExist) || l.restart {
		return fresh, nil
	}
	if err != nil {
		return nil, err
	}
	var p progressFile
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("read %s: %w", l.state(), err)
	}
	if p.Done >= l.count {
		return fresh, nil // that loop has finished
	}
	if p.Nodes != l.Nodes || p.Faults != l.Faults || !p.Mode.is(l.Mode) || p.Run != l.Run {
		of := settings{Nodes: p.Nodes, Faults: p.Faults, Mode: p.Mode, Run: p.Run}
		return nil, fmt.Errorf("%s is of a loop with %s: go on with these, or begin anew with RESTART=1", l.state(), of.args())
	}
	return &p, nil
}

func (l loop) save(p *progressFile) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	next := l.state() + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	return os.Rename(next, l.state())
}

// failed keeps the files of a failed run, and returns how to repeat it.
func (l loop) failed(ctx context.Context, s settings, r *report, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() // the loop was stopped
	}
	if r != nil {
		r.print(os.Stdout)
	}
	kept := filepath.Join(l.runDir, fmt.Sprintf("failed-%d", s.Seed))
	err = errors.Join(err, os.RemoveAll(kept), os.Rename(filepath.Join(l.runDir, "run"), kept))
	return fmt.Errorf("%s\nlogs: %s\nagain: make chaos SEED=%d %s", causes(err), kept, s.Seed, s.args())
}

// args returns the arguments of make for runs with these settings.
func (s settings) args() string {
	args := fmt.Sprintf("NODES=%d FAULTS=%s", s.Nodes, s.Faults)
	if !s.Mode.is(crdMode) {
		args += " MODE=" + s.Mode.String()
	}
	if s.Run != "" {
		args += " RUN=" + s.Run
	}
	if s.Only != "" {
		args += fmt.Sprintf(" ONLY=%q", s.Only)
	}
	if s.Skew != 0 && s.Skew != skew {
		args += " SKEW=" + s.Skew.String()
	}
	return args
}
