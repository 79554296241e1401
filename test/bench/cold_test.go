package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// The channel is closed by the first event that reaches what is expected, and by no other.
func TestAnnounced(t *testing.T) {
	reached, first := announced(func(event []byte) bool { return len(event) > 0 })
	closed := func() bool {
		select {
		case <-first:
			return true
		default:
			return false
		}
	}
	if reached(nil) || closed() {
		t.Error("an event that does not reach it counts")
	}
	for range 2 {
		if !reached([]byte("x")) || !closed() {
			t.Error("an event that reaches it does not count")
		}
	}
}

// The CPU is read when the channel is closed, not before, and not if the run has failed.
func TestCPUAt(t *testing.T) {
	failed := errors.New("failed")
	ctx, fail := context.WithCancelCause(t.Context())
	r := &run{process: &bed.Process{}} // its /proc/0 does not exist
	closed := make(chan struct{})
	close(closed)
	if _, err := r.cpuAt(ctx, closed)(); err == nil || !strings.Contains(err.Error(), "/proc/0/stat") {
		t.Errorf("the process is not read: %v", err)
	}
	never := r.cpuAt(ctx, make(chan struct{}))
	fail(failed)
	if _, err := never(); !errors.Is(err, failed) {
		t.Errorf("after a failure: %v", err)
	}
}
