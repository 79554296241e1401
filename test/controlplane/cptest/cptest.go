// Package cptest gives tests a control plane: one of their own, one shared by all tests of a
// package, or one from a pool that tests take turns at. If a test fails, the state folder,
// with the logs, is kept, and its path printed.
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
	return s.end(m.Run())
}

// end stops the control plane and returns the exit code.
func (s *Shared) end(code int) int {
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

// Pool is a pool of control planes that the tests of a package take turns at. Each test has
// one to itself until it ends, so tests may run in parallel; there are as many as run at the
// same time.
//
//	var planes cptest.Pool
//
//	func TestMain(m *testing.M) { os.Exit(planes.Main(m)) }
//
//	func TestIt(t *testing.T) { t.Parallel(); c := planes.Cluster(t); … }
type Pool struct {
	mu        sync.Mutex
	all, free []*Shared
}

// Cluster returns a control plane that no other test uses before t ends. It still contains
// what earlier tests left.
func (p *Pool) Cluster(t testing.TB) *controlplane.Cluster {
	t.Helper()
	s := p.take()
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, s)
	})
	return s.Cluster(t)
}

func (p *Pool) take() *Shared {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		p.all = append(p.all, &Shared{})
		return p.all[len(p.all)-1]
	}
	last := len(p.free) - 1
	s := p.free[last]
	p.free = p.free[:last]
	return s
}

// Main runs the tests, stops the control planes and returns the exit code.
func (p *Pool) Main(m *testing.M) int {
	code := m.Run()
	for _, s := range p.all {
		code = s.end(code)
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
