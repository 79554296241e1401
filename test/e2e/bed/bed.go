//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

const (
	// stateDir is on the sandbox's own tmpfs; short, for the unix sockets.
	stateDir = "/run/bed"
	pollTick = 50 * time.Millisecond
	// patience limits a wait whose context has no deadline.
	patience = 3 * time.Minute
)

// Options configure a bed.
type Options struct {
	// BinDir holds kubectl, its plugin and cilium-pool-operator.
	BinDir string
	// Kubernetes holds etcd and kube-apiserver.
	Kubernetes string
	// CiliumDir holds Cilium's programs, next to its bpf folder and its CRDs.
	CiliumDir string
	// Logs is the folder of all logs. It is created.
	Logs string
	// Log receives a line per step. Nil: no log.
	Log io.Writer
	// Helm is the program that renders Cilium's chart, CiliumDir/chart.
	Helm string
	// Examples is the folder of the example values. The agents run with its
	// cilium-values.yaml, and with Values, other files of it, on top; if the cluster moves, only
	// after the move.
	Examples string
	Values   []string
	// Native keeps the routing of the values. Otherwise it is VXLAN.
	Native bool
	// IPAM is the agents' mode. Empty: crd.
	IPAM string
	// Set are further initial values, as helm --set takes them.
	Set []string
	// Then is the mode after a move. In a cluster that moves agents and Cilium's operator read
	// their configuration from the API server at each start, and agents report more often.
	Then string
	// Before starts with the values of a cluster that did not have our operator.
	Before bool
}

func (b *Bed) moves() bool { return b.opts.Then != "" }

// Bed is a cluster. Its methods may be called concurrently.
type Bed struct {
	Client client.WithWatch

	opts       Options
	began      time.Time
	cluster    *controlplane.Cluster
	kubeconfig string
	config     map[string]string // the agents' own, by key
	moved      map[string]string // the configuration after the move

	mu       sync.Mutex
	nodes    map[string]*Node
	procs    []*process.Process
	attached map[*Pod]bool
}

// Start creates the network and the control plane. Only the process that Sandbox started can
// call it, once.
func Start(ctx context.Context, o Options) (_ *Bed, err error) {
	if !Inside() {
		return nil, errors.New("a bed is started in a sandbox only")
	}
	if o.IPAM == "" {
		o.IPAM = crdMode
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := os.MkdirAll(o.Logs, 0o755); err != nil {
		return nil, fmt.Errorf("make log folder: %w", err)
	}
	b := &Bed{opts: o, began: time.Now(), nodes: map[string]*Node{}, attached: map[*Pod]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Stop())
		}
	}()
	if err := prepareMounts(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCannot, err)
	}
	if err := installCompiler(); err != nil {
		return nil, err
	}
	if err := b.makeConfig(ctx); err != nil {
		return nil, err
	}
	if err := makeBridge(ctx); err != nil {
		return nil, err
	}
	return b, b.startControlPlane(ctx)
}

func (b *Bed) startControlPlane(ctx context.Context) error {
	own, err := crds.All()
	if err != nil {
		return err
	}
	folders := []fs.FS{os.DirFS(filepath.Join(b.opts.CiliumDir, "crds/v2")), os.DirFS(filepath.Join(b.opts.CiliumDir, "crds/v2alpha1"))}
	ciliums, err := controlplane.CRDsIn(folders)
	if err != nil {
		return err
	}
	dir := filepath.Join(b.opts.Logs, "controlplane")
	b.cluster, err = controlplane.Start(ctx, controlplane.Options{
		Dir: dir, BinDir: b.opts.Kubernetes, BindAddress: bridgeAddress, CRDs: append(ciliums, own...),
	})
	if err != nil {
		return err
	}
	b.kubeconfig = filepath.Join(dir, "admin.kubeconfig")
	if err := b.cluster.WriteKubeconfig(b.kubeconfig); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), ciliumv2.AddToScheme(scheme), ciliumv2alpha1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if b.Client, err = client.NewWithWatch(b.cluster.Config(), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := b.grant(ctx); err != nil {
		return err
	}
	b.Logf("control plane up")
	if b.moves() {
		return b.EditConfig(ctx, b.config)
	}
	return nil
}

// Stop stops all processes. The rest ends with the sandbox.
func (b *Bed) Stop() error {
	b.mu.Lock()
	procs := b.procs
	b.mu.Unlock()
	var errs []error
	for i := len(procs) - 1; i >= 0; i-- {
		errs = append(errs, procs[i].Kill())
	}
	if b.cluster != nil {
		// etcd's files are large, and show no more than the logs.
		errs = append(errs, b.cluster.Stop(), os.RemoveAll(filepath.Join(b.cluster.Dir(), "data")))
	}
	return errors.Join(errs...)
}

// Logf writes a line with the seconds since the bed was started.
func (b *Bed) Logf(format string, args ...any) {
	fmt.Fprintf(b.opts.Log, "%7.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// Config returns the administrator's configuration.
func (b *Bed) Config() *rest.Config { return b.cluster.Config() }

// Held returns the addresses of the pods attached right now, by node, whether or
// not an agent has reported them.
func (b *Bed) Held() map[string][]netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := map[string][]netip.Addr{}
	for p := range b.attached {
		held[p.node.Name] = append(held[p.node.Name], p.Addresses...)
	}
	return held
}

func (b *Bed) setAttached(p *Pod, is bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if is {
		b.attached[p] = true
	} else {
		delete(b.attached, p)
	}
}

// CiliumNode reads a CiliumNode.
func (b *Bed) CiliumNode(ctx context.Context, name string) (*ciliumv2.CiliumNode, error) {
	cn := &ciliumv2.CiliumNode{}
	return cn, b.Client.Get(ctx, client.ObjectKey{Name: name}, cn)
}

// Eventually waits until holds returns nil. It returns the last error of holds if ctx
// ends first, or after three minutes.
func (b *Bed) Eventually(ctx context.Context, what string, holds func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := harness.Until(ctx, pollTick, holds); err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}
