//go:build linux

// Package kube runs a Kubernetes cluster of real components on one machine: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler in one box, and each node, with
// containerd and kubelet, in its own box. A bridge in the box of the control plane connects
// them. The machine's own network shows nothing of it except the loopback port that leads to
// the API server.
//
// It installs no software in the cluster: no CNI, no DNS.
package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/box"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Programs that must be installed on the machine.
var programs = []string{"ip", "nsenter", "runc", "iptables", "conntrack", "mount", "cp"}

// Config configures a cluster. All paths are absolute.
type Config struct {
	// Dir holds the state of the cluster: disks, certificates, pids, logs.
	Dir string
	// BinDir holds the programs that were built.
	BinDir string
	// Images are the image files that all nodes have from the start.
	Images []string
	// CacheDir keeps a disk with these images for later clusters.
	CacheDir string
	// DualStack gives nodes and Services IPv6 addresses too.
	DualStack bool
	// Leashed ends the cluster with this process.
	Leashed bool
	// Say is called for each step.
	Say func(format string, args ...any)
}

// Cluster is a running cluster, or the rest of one.
type Cluster struct {
	Config
	State box.State
	// Kubelets are the programs of nodes that run another kubelet.
	Kubelets map[int]string
}

// New returns the cluster of a folder, running or not.
func New(c Config) *Cluster {
	sum := sha256.Sum256([]byte(c.Dir))
	return &Cluster{Config: c, State: box.State{
		Dir:   filepath.Join(c.Dir, "boxes"),
		Group: "cilium-pool-cluster-" + hex.EncodeToString(sum[:4]),
	}}
}

// Check returns an error if the machine cannot run a cluster.
func (c *Cluster) Check() error { return box.Check(c.Dir, programs...) }

// Logs returns the folder of all logs.
func (c *Cluster) Logs() string { return filepath.Join(c.Dir, "logs") }

// Kubeconfig returns the administrator's kubeconfig, for use on this machine.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

// Down ends everything and removes all but the logs, whichever process started the cluster and
// however far it got.
func (c *Cluster) Down() error {
	if err := c.State.KillAll(); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(c.Dir, entry.Name())
		if path == c.Logs() {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// Kubectl runs kubectl as the administrator, and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.BinDir, "kubectl"), append([]string{"--kubeconfig", c.Kubeconfig()}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// Await polls until done returns nil, and on timeout fails with its last error.
func Await(ctx context.Context, limit time.Duration, what string, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s: %s", limit, what))
	defer cancel()
	return harness.Until(ctx, 250*time.Millisecond, done)
}
