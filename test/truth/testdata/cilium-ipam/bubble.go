package main

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/cilium/hive"
	"github.com/cilium/hive/cell"
	"github.com/cilium/hive/job"
)

// inBubble runs a program with a clock that stands still while there is work to do: time passes only
// when a request says so, and each answer is sent once all goroutines wait for time or for another
// request. A bubble needs a *testing.T, so this poses as the program of a test.
func inBubble(run func() error) {
	serve := func(*testing.T) { exit(run()) } // The bubble would wait for Cilium's goroutines.
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "agent", F: func(t *testing.T) { synctest.Test(t, serve) }}}, nil, nil)
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
