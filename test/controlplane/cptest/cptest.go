// Package cptest gives tests a control plane: one of their own, or one that
// all tests of a package share. The state folder, with the logs, is kept when
// a test fails, and its path printed.
package cptest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
)

// New starts a control plane for one test and stops it when the test ends.
// Options.Dir must be empty.
func New(t testing.TB, o controlplane.Options) *controlplane.Cluster {
	t.Helper()
	c, err := start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(c, t.Failed(), t.Logf); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Shared is one control plane for all tests of a package, started when the
// first test asks for it:
//
//	var shared cptest.Shared
//
//	func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }
//
//	func TestIt(t *testing.T) { c := shared.Cluster(t); … }
type Shared struct {
	// Options of the control plane; Dir must be empty.
	Options controlplane.Options

	once    sync.Once
	cluster *controlplane.Cluster
	err     error
}

// Cluster returns the control plane; the test fails if it cannot be started.
func (s *Shared) Cluster(t testing.TB) *controlplane.Cluster {
	t.Helper()
	s.once.Do(func() { s.cluster, s.err = start(context.Background(), s.Options) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

// Main runs the tests, stops the control plane and returns the exit code.
func (s *Shared) Main(m *testing.M) int {
	code := m.Run()
	if s.cluster == nil {
		return code
	}
	logf := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	if err := stop(s.cluster, code != 0, logf); err != nil {
		logf("%v", err)
		return 1
	}
	return code
}

func start(ctx context.Context, o controlplane.Options) (*controlplane.Cluster, error) {
	dir, err := os.MkdirTemp("", "controlplane-test-")
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	c, err := controlplane.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%w\n(the logs are in %s)", err, dir)
	}
	return c, nil
}

func stop(c *controlplane.Cluster, keep bool, logf func(string, ...any)) error {
	if err := c.Stop(); err != nil {
		return err
	}
	if keep {
		logf("the control plane's logs are kept in %s", c.Dir())
		return nil
	}
	return os.RemoveAll(c.Dir())
}
