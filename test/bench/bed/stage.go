package bed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/gateway"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Stage is a control plane for one run of a contender.
type Stage struct {
	Client client.Client

	cluster *controlplane.Cluster
	binDir  string
	running []*Process
}

// Config returns the administrator's config.
func (s *Stage) Config() *rest.Config { return s.cluster.Config() }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (s *Stage) Kubeconfig() string { return filepath.Join(s.cluster.Dir(), kubeconfigFile) }

// etcd returns a client of the stage's etcd.
func (s *Stage) etcd() *gateway.Client {
	pid, _ := s.cluster.PIDs()
	// Through the working directory of etcd, as a socket's path is limited to 107 bytes.
	return gateway.New(fmt.Sprintf("/proc/%d/cwd/%s", pid, controlplane.EtcdSocket))
}

// Start runs a program; a name without a slash is one of the built binaries.
func (s *Stage) Start(name string, argv ...string) (*Process, error) {
	if filepath.Base(argv[0]) == argv[0] || !filepath.IsAbs(argv[0]) {
		argv = append([]string{filepath.Join(s.binDir, argv[0])}, argv[1:]...)
	}
	p, err := spawn(s.cluster.Dir(), name, argv...)
	if err == nil {
		s.running = append(s.running, p)
	}
	return p, err
}

// Close stops everything.
func (s *Stage) Close() error {
	var errs []error
	for _, p := range s.running {
		errs = append(errs, p.Stop())
	}
	return errors.Join(append(errs, s.cluster.Stop())...)
}

// Usage is the resource usage of a control plane and a contender so far.
type Usage struct {
	At              time.Time
	Contender       Use
	APIServer, Etcd Use
	Counts          Counts
}

// Usage reads the current usage. The usage of a nil process is zero.
func (s *Stage) Usage(ctx context.Context, p *Process) (Usage, error) {
	u := Usage{At: time.Now()}
	var err error
	if p != nil {
		if u.Contender, err = p.Use(); err != nil {
			return u, fmt.Errorf("%s has ended: %w; its log ends:\n%s", p.Name(), err, p.LogTail())
		}
	}
	etcd, apiServer := s.cluster.PIDs()
	if u.APIServer, err = useOf(apiServer); err != nil {
		return u, err
	}
	if u.Etcd, err = useOf(etcd); err != nil {
		return u, err
	}
	u.Counts, err = s.counts(ctx)
	return u, err
}

const (
	idleStep = 250 * time.Millisecond
	// idleShare is the CPU that an idle process may use in a step.
	idleShare = 30 * time.Millisecond
)

// Calm is the usual time for IdleFor.
const Calm = 1500 * time.Millisecond

// IdleFor waits until p has used next to no CPU for that long.
func (s *Stage) IdleFor(ctx context.Context, p *Process, long time.Duration) error {
	last, err := p.Use()
	for calm := time.Duration(0); err == nil && calm < long; {
		if err := harness.Sleep(ctx, idleStep); err != nil {
			return fmt.Errorf("%s does not come to rest: %w", p.Name(), err)
		}
		var now Use
		if now, err = p.Use(); now.CPU-last.CPU <= idleShare {
			calm += idleStep
		} else {
			calm = 0
		}
		last = now
	}
	if err != nil {
		return fmt.Errorf("%s has ended: %w; its log ends:\n%s", p.Name(), err, p.LogTail())
	}
	return nil
}

// Until waits until p's log contains all of texts.
func (s *Stage) Until(ctx context.Context, p *Process, texts ...string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return harness.Until(ctx, 10*time.Millisecond, func(context.Context) error {
		if p.Says(texts...) {
			return nil
		}
		if !p.Running() {
			cancel(fmt.Errorf("%s has ended; its log ends:\n%s", p.Name(), p.LogTail()))
		}
		return fmt.Errorf("%s did not say %q", p.Name(), texts)
	})
}

// HasRoutes waits until each node of a world with routes has an FRRConfiguration: an operator that waits for the
// API server seems idle.
func (s *Stage) HasRoutes(ctx context.Context, w World) error {
	if !w.Routes {
		return nil
	}
	return harness.Until(ctx, time.Second, func(ctx context.Context) error {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(frrconfig.Kind)
		err := s.Client.List(ctx, list, client.InNamespace(FRRNamespace))
		if n := len(list.Items) - 1; err == nil && n < w.Nodes { // without the template
			err = fmt.Errorf("%d of %d nodes have an FRRConfiguration", n, w.Nodes)
		}
		return err
	})
}

// warmPage is the page size of Warm.
const warmPage = 2000

// Warm reads each kind once from an API server that has just started, so that it has read
// etcd and filled its caches before a contender asks. It requests only metadata, and
// discards it.
func (s *Stage) Warm(ctx context.Context) error {
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "NodeList"}, {Group: "cilium.io", Version: "v2", Kind: "CiliumNodeList"},
		{Group: "cilium-pool.io", Version: "v1alpha1", Kind: "PodIPBlockList"}, {Version: "v1", Kind: "PodList"},
	} {
		for next := ""; ; {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind)
			if err := s.Client.List(ctx, list, client.Limit(warmPage), client.Continue(next)); err != nil {
				return fmt.Errorf("warm up the API server: %w", err)
			}
			if next = list.Continue; next == "" {
				break
			}
		}
	}
	return nil
}
