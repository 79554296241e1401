package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

// startProcess runs a program in the state folder. It removes the files called stale first.
func (c *Cluster) startProcess(name, program string, args []string, stale ...string) (*process.Process, error) {
	p, err := process.Start(process.Command{
		Name: name, Dir: c.dir, WorkDir: c.dir, Env: environment(os.Environ()),
		Args:    append([]string{filepath.Join(c.opts.BinDir, program)}, args...),
		PIDFile: true, Detached: c.opts.Detached,
		Prepare: func() error {
			for _, file := range stale {
				if err := os.Remove(filepath.Join(c.dir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	c.logf("%s started, pid %d, log %s", name, p.PID(), process.LogPath(c.dir, name))
	return p, nil
}

// poll calls ready until it returns nil, the process ends, or ctx ends.
func poll(ctx context.Context, name string, p *process.Process, ready func(context.Context) error) error {
	const perCall = 5 * time.Second
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	err := harness.Until(ctx, pollInterval, func(ctx context.Context) error {
		if !p.Running() {
			err := errors.New("it ended by itself")
			end(err)
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, perCall)
		defer cancel()
		return ready(ctx)
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w; its log ends:\n%s", name, err, p.LogTail())
	}
	return nil
}

// environment returns our environment without the variables that etcd would read as flags.
func environment(env []string) []string {
	kept := make([]string, 0, len(env))
	for _, v := range env {
		if !strings.HasPrefix(v, "ETCD_") {
			kept = append(kept, v)
		}
	}
	return kept
}
