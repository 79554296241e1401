package bed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
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
	// Install prepares an empty control plane once, from which all worlds are created: a
	// peer installs its own CRDs.
	Install func(ctx context.Context, s *Stage) error
	// Settle runs the operator on a world that should be settled.
	Settle func(ctx context.Context, s *Stage, w World) error

	made string // see maker
}

// maker identifies what makes worlds: these binaries, with or without Install. Others may make
// other worlds.
func (s *Store) maker() (string, error) {
	if s.made != "" {
		return s.made, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, path := range []string{self, filepath.Join(s.BinDir, "cilium-pool-operator")} {
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the operator, which only settled worlds need
		}
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return "", err
		}
	}
	s.made = fmt.Sprintf("%s, installed: %t", hex.EncodeToString(sum.Sum(nil)), s.Install != nil)
	return s.made, nil
}

// ensure returns the folder of a world, and creates the world unless these binaries
// have already made it.
func (s *Store) ensure(ctx context.Context, key, from string, fill func(ctx context.Context, st *Stage) error) (string, error) {
	dir := filepath.Join(s.Dir, "worlds", key)
	maker, err := s.maker()
	if err != nil {
		return "", err
	}
	if made, err := os.ReadFile(filepath.Join(dir, doneFile)); err == nil && string(made) == maker {
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
	st, err := s.start(ctx, dir, ControlPlane{})
	if err != nil {
		return "", err
	}
	if err := errors.Join(fill(ctx, st), st.Close()); err != nil {
		return "", fmt.Errorf("make world %s: %w", key, err)
	}
	s.Say("world %s made in %.0f s", key, time.Since(begin).Seconds())
	return dir, os.WriteFile(filepath.Join(dir, doneFile), []byte(maker), 0o600)
}

// Make creates a world if it does not exist yet. Modes share its Nodes and pods, which take
// the longest to create.
func (s *Store) Make(ctx context.Context, w World) (string, error) {
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

// ControlPlane is how a control plane differs from the usual one of a stage.
type ControlPlane struct {
	// Args and Env are the API server's, in addition.
	Args, Env []string
	// EtcdSyncs makes etcd wait for the disk.
	EtcdSyncs bool
}

// Open starts a control plane on a copy of a world.
func (s *Store) Open(ctx context.Context, w World) (*Stage, error) {
	return s.OpenWith(ctx, w, ControlPlane{})
}

// OpenWith is Open with a different control plane. The world is created with the usual one,
// so that all runs have the same data.
func (s *Store) OpenWith(ctx context.Context, w World, with ControlPlane) (*Stage, error) {
	from, err := s.Make(ctx, w)
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
	return s.start(ctx, dir, with)
}

func (s *Store) start(ctx context.Context, dir string, with ControlPlane) (*Stage, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cluster, err := controlplane.Start(ctx, controlplane.Options{
		Dir: dir, BinDir: s.BinDir, Log: io.Discard, APIServerArgs: with.Args, APIServerEnv: with.Env, EtcdSyncs: with.EtcdSyncs,
	})
	if err != nil {
		return nil, err
	}
	scheme, err := apiclient.Scheme()
	if err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
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
		return copyFile(target, path)
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
