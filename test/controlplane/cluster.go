// Package controlplane starts and stops the real etcd and kube-apiserver on this machine, for
// tests and for the demo.
//
// It owns their processes and a folder with their state: certificates, data, logs, pids and an
// admin kubeconfig. It never runs controllers, a scheduler or nodes: a test that needs them
// provides them itself.
//
// etcd listens on a unix socket in the folder, kube-apiserver on a port, by default of the
// loopback, which it keeps across restarts. RBAC is enabled. ServiceAccount admission is
// disabled, so that pods need no ServiceAccount.
//
// Only its own tests find a control plane that outlives its test, or loses data.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

const (
	etcdName      = "etcd"
	apiServerName = "kube-apiserver"
	uncachedName  = "kube-apiserver-uncached"

	kubeconfigFile = "kubeconfig"
	auditLogFile   = "audit.log"

	// startTimeout limits a start whose context has no deadline.
	startTimeout = 2 * time.Minute
	// stopTimeout is how long a process may take to exit after SIGTERM before it gets SIGKILL.
	stopTimeout = 10 * time.Second
)

// Options specify how a cluster is started. The zero value is useful.
type Options struct {
	// Dir holds the state. Empty: a temporary folder that Stop removes. If a stopped cluster
	// left the folder, its data, certificates and port are used again.
	Dir string
	// BinDir holds etcd and kube-apiserver. Empty: CPO_BIN_DIR from the
	// environment, else .cache/bin below the module's root.
	BinDir string
	// BindAddress is where kube-apiserver listens: an IPv4 address of this
	// machine. Empty: the loopback.
	BindAddress string
	// Log receives a line per step. Nil: no log. The processes' own logs are Dir/etcd.log and
	// Dir/kube-apiserver.log.
	Log io.Writer
	// AuditLog writes every request to Dir/audit.log once it is answered, at level Metadata.
	AuditLog bool
	// CRDs are installed, and Start waits for them. Nil: DefaultCRDs. Empty: none.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// Detached processes outlive this one; Attach finds them again. Otherwise they are killed
	// with it, however it ends (on Linux).
	Detached bool
}

// Cluster is a control plane. Its methods may be called concurrently.
type Cluster struct {
	opts    Options
	dir     string
	tempDir bool
	config  *rest.Config

	mu              sync.Mutex
	etcd, apiServer *process.Process
	uncached        *process.Process // nil unless StartUncached started it
}

// Start returns once the API server serves, its default namespaces exist and the CRDs are
// established. If it fails, or ctx ends meanwhile, it leaves no process, and no folder if Dir
// was empty; the error then ends with the last lines of the relevant log. After Start returns,
// ctx has no effect.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.BinDir, err = binDir(o.BinDir); err != nil {
		return nil, err
	}
	if o.BindAddress == "" {
		o.BindAddress = loopback
	}
	if o.CRDs == nil {
		if o.CRDs, err = DefaultCRDs(); err != nil {
			return nil, err
		}
	}
	c := &Cluster{opts: o}
	if err := c.makeDir(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.end((*process.Process).Kill))
		}
	}()

	begin := time.Now()
	if err := c.writeCertificates(); err != nil {
		return nil, err
	}
	if err := c.startEtcd(ctx); err != nil {
		return nil, err
	}
	if err := c.startFirstAPIServer(ctx); err != nil {
		return nil, err
	}
	c.logf("%s serves %s after %.1f s", apiServerName, c.config.Host, time.Since(begin).Seconds())
	if err := c.InstallCRDs(ctx, o.CRDs...); err != nil {
		return nil, err
	}
	c.logf("%d CRDs established after %.1f s", len(o.CRDs), time.Since(begin).Seconds())
	return c, nil
}

// Attach finds the cluster that a detached Start left in dir, running or not. It fails if none
// was ever started.
func Attach(dir string) (*Cluster, error) {
	bins, err := binDir("")
	if err != nil {
		bins = "" // Enough to stop it; starting it again will report what is missing.
	}
	c := &Cluster{opts: Options{Dir: dir, BinDir: bins, Log: io.Discard, Detached: true}, dir: dir}
	if c.config, err = readKubeconfig(filepath.Join(dir, kubeconfigFile)); err != nil {
		return nil, fmt.Errorf("no control plane in %s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(dir, auditLogFile)); err == nil {
		c.opts.AuditLog = true
	}
	if c.etcd, err = process.Find(dir, etcdName); err != nil {
		return nil, err
	}
	if c.apiServer, err = process.Find(dir, apiServerName); err != nil {
		return nil, err
	}
	return c, nil
}

// Stop ends all processes, gracefully at first, and removes a temporary folder. It may be
// called again, and after the Kill methods.
func (c *Cluster) Stop() error {
	return c.end(func(p *process.Process) error { return p.Stop(stopTimeout) })
}

func (c *Cluster) end(end func(*process.Process) error) error {
	// Without etcd, kube-apiserver would hang in its graceful stop.
	etcd, apiServer := c.processes()
	if err := errors.Join(end(c.uncached), end(apiServer), end(etcd)); err != nil {
		return err
	}
	if !c.tempDir {
		return nil
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove state: %w", err)
	}
	return nil
}

// Dir returns the folder of the cluster's state.
func (c *Cluster) Dir() string { return c.dir }

// BinDir returns the folder of the binaries: etcd, kube-apiserver, kubectl.
func (c *Cluster) BinDir() string { return c.opts.BinDir }

// PIDs returns the process IDs; 0 for one that does not run.
func (c *Cluster) PIDs() (etcd, apiServer int) {
	e, a := c.processes()
	return e.PID(), a.PID()
}

// KillAPIServer kills kube-apiserver and waits until it is gone.
func (c *Cluster) KillAPIServer() error {
	_, apiServer := c.processes()
	return apiServer.Kill()
}

// StartAPIServer starts a killed kube-apiserver on the same port and returns
// once it is ready. It fails if kube-apiserver still runs. If ctx ends first,
// kube-apiserver is left starting; see Ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	if err := c.startAPIServer(); err != nil {
		return err
	}
	return c.Ready(ctx)
}

// KillEtcd kills etcd and waits until it is gone.
func (c *Cluster) KillEtcd() error {
	etcd, _ := c.processes()
	return etcd.Kill()
}

// StartEtcd starts a killed etcd with its earlier data. If kube-apiserver runs, it returns
// once that is ready again, else as soon as etcd listens.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if _, apiServer := c.processes(); !apiServer.Running() {
		return nil
	}
	return c.Ready(ctx)
}

func (c *Cluster) processes() (etcd, apiServer *process.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.etcd, c.apiServer
}

func (c *Cluster) makeDir() error {
	if c.opts.Dir == "" {
		dir, err := os.MkdirTemp("", "controlplane-")
		if err != nil {
			return fmt.Errorf("make state folder: %w", err)
		}
		c.dir, c.tempDir = dir, true
		return nil
	}
	dir, err := filepath.Abs(c.opts.Dir)
	if err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	c.dir = dir
	return nil
}

func (c *Cluster) logf(format string, args ...any) {
	fmt.Fprintf(c.opts.Log, format+"\n", args...)
}

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, startTimeout)
}
