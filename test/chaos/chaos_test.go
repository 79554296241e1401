package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// binaries puts the operator into the folder of etcd and kube-apiserver.
func binaries(t *testing.T) string {
	t.Helper()
	built, err := filepath.Abs("../../.cache/bin")
	harness.Must(t, err)
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(built, "etcd"), filepath.Join(built, "kube-apiserver"), harness.Program(t, operatorBinary)} {
		harness.Must(t, os.Symlink(path, filepath.Join(dir, filepath.Base(path))))
	}
	return dir
}

// TestLongOneOfEachFault makes a small run in each mode: few nodes, and each kind of fault at
// least once. The simulator kills operators at their writes as well, in less time.
func TestLongOneOfEachFault(t *testing.T) {
	t.Parallel() // runs mostly wait, and share no state
	bin := binaries(t)
	for _, m := range []mode{crdMode, multiPoolMode, kubernetesMode} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			oneOfEach(t, settings{binDir: bin, nodes: 12, duration: 15 * time.Second, seed: 1, mode: m, scenario: scenarios()[0]})
		})
	}
}

// TestLongScenarios runs the other scenarios in small: a few of their faults, each once. Versions needs the
// program of an earlier commit.
func TestLongScenarios(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	others := slices.DeleteFunc(scenarios()[1:], func(s scenario) bool { return s.versions })
	for _, s := range others {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			oneOfEach(t, settings{binDir: bin, nodes: 4, small: true, duration: time.Second, seed: 1, mode: crdMode, scenario: s})
		})
	}
}

func oneOfEach(t *testing.T, s settings) {
	t.Helper()
	dir, err := os.MkdirTemp("", "chaos-") // kept when it fails
	harness.Must(t, err)
	r, err := run(t.Context(), s, filepath.Join(dir, "run"), t.Logf)
	if err != nil {
		t.Fatalf("%v\nlogs: %s", err, dir)
	}
	r.print(testWriter{t})
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

type testWriter struct{ *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.Logf("%s", p)
	return len(p), nil
}

func TestStoppedRunLeavesNoProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := settings{binDir: binaries(t), nodes: 4, duration: time.Minute, seed: 1, mode: crdMode, scenario: scenarios()[0]}
	_, err := run(ctx, s, dir, func(format string, args ...any) {
		t.Logf(format, args...)
		cancel() // the first message means that everything is running
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the run ended with %v", err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	harness.Must(t, err)
	for _, file := range processes {
		line, err := os.ReadFile(file)
		if err == nil && (bytes.Contains(line, []byte(dir)) || bytes.Contains(line, []byte(s.binDir))) {
			t.Errorf("it runs still: %q", line)
		}
	}
}

// TestRestOutlastsRetries checks that the quiet period at the end outlasts the longest retry
// interval, so that a write on every retry is seen.
func TestRestOutlastsRetries(t *testing.T) {
	for _, wait := range []time.Duration{common.MaxBackoff, common.LongestWait} {
		if restFor <= wait {
			t.Errorf("nothing may be written for %s, and the operator waits for up to %s", restFor, wait)
		}
	}
}
