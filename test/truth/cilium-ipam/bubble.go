package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"

	"github.com/cilium/hive"
	"github.com/cilium/hive/cell"
	"github.com/cilium/hive/job"
)

// serveInBubble answers requests with a clock that stands still while there is work to do:
// time passes only when a request says so, and each answer is sent once all goroutines wait
// for time or for another request. A bubble needs a *testing.T, so this poses as the program
// of a test.
func serveInBubble(do func(line []byte) (response any, err error)) {
	serve := func(t *testing.T) {
		code := 0
		if err := answer(os.Stdin, os.Stdout, do); err != nil {
			fmt.Fprintln(os.Stderr, "cilium-ipam:", err)
			code = 1
		}
		os.Exit(code) // The bubble would wait for Cilium's goroutines.
	}
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "agent", F: func(t *testing.T) { synctest.Test(t, serve) }}}, nil, nil)
}

func answer(in io.Reader, out io.Writer, do func([]byte) (any, error)) error {
	encoder := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		response, err := do(lines.Bytes())
		if err := errors.Join(err, encoder.Encode(response)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// jobs returns a group that runs jobs as the agent's own does, until stop.
func jobs() (group job.Group, stop func() error, err error) {
	health, _ := cell.NewSimpleHealth()
	h := hive.New(job.Cell, cell.Invoke(func(r job.Registry) { group = r.NewGroup(health) }))
	log := slog.New(slog.DiscardHandler)
	if err := h.Start(log, context.Background()); err != nil {
		return nil, nil, err
	}
	return group, func() error { return h.Stop(log, context.Background()) }, nil
}
