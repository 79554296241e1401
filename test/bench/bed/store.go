package bed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	kubeconfigFile = "kubeconfig"
	doneFile       = "populated"
	startTimeout   = 5 * time.Minute
)

// Store keeps worlds as the state of stopped control planes, so that each run
// begins with a copy of the same data.
type Store struct {
	// Dir holds the worlds, and the copies that runs use.
	Dir string
	// BinDir holds etcd, kube-apiserver and the contenders.
	BinDir string
	// Say reports progress.
	Say func(format string, args ...any)
	// Install prepares an empty control plane once, the base of all worlds: a peer installs its
	// own CRDs.
	Install func(ctx context.Context, s *Stage) error
	// Settle runs the operator on a world that should be settled.
	Settle func(ctx context.Context, s *Stage, w World) error
}

// ensure returns the folder of a world, and creates the world unless it is there.
func (s *Store) ensure(ctx context.Context, key, from string, fill func(ctx context.Context, st *Stage) error) (string, error) {
	dir := filepath.Join(s.Dir, "worlds", key)
	if _, err := os.Stat(filepath.Join(dir, doneFile)); err == nil {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if from != "" {
		if err := copyState(dir, from); err != nil {
			return "", err
		}
	}
	begin := time.Now()
	st, err := s.start(ctx, dir)
	if err != nil {
		return "", err
	}
	if err := errors.Join(fill(ctx, st), st.Close()); err != nil {
		return "", fmt.Errorf("make world %s: %w", key, err)
	}
	s.Say("world %s made in %.0f s", key, time.Since(begin).Seconds())
	return dir, os.WriteFile(filepath.Join(dir, doneFile), nil, 0o600)
}

// make creates a world if it does not exist yet. Modes share its Nodes and pods, which take
// the longest to create.
func (s *Store) make(ctx context.Context, w World) (string, error) {
	base, err := s.ensure(ctx, "base", "", func(ctx context.Context, st *Stage) error {
		if s.Install == nil {
			return nil
		}
		return s.Install(ctx, st)
	})
	if err != nil {
		return "", err
	}
	cluster, err := s.ensure(ctx, w.cluster().Key(), base, w.populateCluster)
	if err != nil {
		return "", err
	}
	return s.ensure(ctx, w.Key(), cluster, func(ctx context.Context, st *Stage) error {
		if err := w.populate(ctx, st); err != nil || !w.Settled {
			return err
		}
		return s.Settle(ctx, st, w)
	})
}

// Open starts a control plane on a copy of a world.
func (s *Store) Open(ctx context.Context, w World) (*Stage, error) {
	from, err := s.make(ctx, w)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.Dir, "run")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := copyState(dir, from); err != nil {
		return nil, err
	}
	return s.start(ctx, dir)
}

func (s *Store) start(ctx context.Context, dir string) (*Stage, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cluster, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, BinDir: s.BinDir})
	if err != nil {
		return nil, err
	}
	c, err := harness.NewClient(cluster.Config())
	if err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	return &Stage{cluster: cluster, binDir: s.BinDir, Client: c}, nil
}

// copyState copies the state of a stopped control plane without its logs, its sockets and
// its port, which another process may use by now.
func copyState(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case !d.Type().IsRegular(), rel == kubeconfigFile, rel == doneFile,
			strings.HasSuffix(rel, ".log"), strings.HasSuffix(rel, ".pid"):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o600)
	})
}
