package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

const (
	// startupTimeout bounds the checks before the operator starts.
	startupTimeout = 30 * time.Second
	// gcPercent is the garbage that may accumulate, in percent of the live heap. With Go's default,
	// the initial lists would permanently double the size of the process.
	gcPercent = 25
	// heapFloor bytes count as live heap, and take no memory, as nothing touches them. With them 16 MB of garbage
	// may accumulate in a small heap, too: otherwise collections take a fifth of the CPU of a cold start.
	heapFloor = 64 << 20
)

// serve runs the operator until ctx ends or it loses the Lease.
func serve(ctx context.Context, o *options) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		floor := make([]byte, heapFloor)
		defer goruntime.KeepAlive(floor)
	}
	if err := countRequests(); err != nil {
		return err
	}
	config, err := restConfig(o.kubeconfig, "", "--kubeconfig")
	if err != nil {
		return err
	}
	config.QPS = o.qps
	config.Burst = o.burst
	config.UserAgent = "cilium-pool-operator/" + version
	if o.settings.CRDSchemas, err = crds.Schemas(); err != nil {
		return err
	}
	scheme, err := apiclient.Scheme()
	if err != nil {
		return err
	}
	starting, started := context.WithTimeout(ctx, startupTimeout)
	defer started()
	direct, err := client.New(bounded(starting, config), client.Options{Scheme: scheme})
	if err != nil {
		return unreachable(config.Host, err)
	}
	if err := preflight(starting, direct, o, config.Host); err != nil {
		return err
	}
	ctx, o.end = context.WithCancelCause(ctx)
	defer o.end(nil)
	if o.leaderElect && !o.settings.Observe && !o.settings.Shadow {
		o.recovery = &state.Recovery{}
	}
	mgr, err := o.newManager(config, scheme)
	if err != nil {
		return err
	}
	if err := o.setup(mgr); err != nil {
		return err
	}
	err = mgr.Start(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, errRestored) {
		return cause
	}
	return err
}

// setup adds the probes and the controllers to a manager.
func (o *options) setup(mgr ctrl.Manager) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if o.settings.Observe {
		return controller.SetupObserver(mgr, o.settings)
	}
	if cache, ok := mgr.GetCache().(*apiclient.Cache); ok && o.history != nil {
		cache.Reads.Restored = o.history.listsWentBack
	}
	return controller.Setup(mgr, o.settings, o.recovery)
}

// newManager returns a manager that elects its leader by a Lease that also holds the settings.
func (o *options) newManager(config *rest.Config, scheme *runtime.Scheme) (ctrl.Manager, error) {
	options := ctrl.Options{
		Scheme: scheme, Cache: informer.CacheOptions(), NewCache: apiclient.NewCache, NewClient: apiclient.NewClient,
		LeaderElection: o.leaderElect, LeaderElectionReleaseOnCancel: true,
		LeaderElectionID: o.leaseName, // the name in metrics; the lock has its own
		LeaseDuration:    &o.leaseDuration, RenewDeadline: new(renewDeadline(o.leaseDuration)), RetryPeriod: new(retryPeriod(o.leaseDuration)),
		Metrics:                o.metricsServer(),
		HealthProbeBindAddress: o.healthAddr,
	}
	if !o.leaderElect {
		return ctrl.NewManager(config, options)
	}
	lock, err := o.leaseLock(config)
	if err != nil {
		return nil, err
	}
	options.LeaderElectionResourceLockInterface = &standbyLock{Interface: lock}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, err
	}
	if o.settings.Observe { // it writes no events
		return mgr, nil
	}
	lock.LockConfig.EventRecorder = mgr.GetEventRecorderFor(lock.Identity()) //nolint:staticcheck // leader election has yet to learn of the newer events
	return mgr, nil
}

// bounded ends every request with ctx, including requests without a context of their own,
// such as REST mapping lookups.
func bounded(ctx context.Context, config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedTransport{ctx, next} })
	return config
}

type boundedTransport struct {
	ctx  context.Context //nolint:containedctx // it bounds requests that carry none
	next http.RoundTripper
}

func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, ok := r.Context().Deadline(); ok {
		return t.next.RoundTrip(r)
	}
	return t.next.RoundTrip(r.WithContext(t.ctx))
}

// renewDeadline and retryPeriod keep the proportions of client-go's defaults: 10 s and 2 s
// for a Lease of 15 s.
func renewDeadline(lease time.Duration) time.Duration { return lease * 2 / 3 }

func retryPeriod(lease time.Duration) time.Duration { return lease * 2 / 15 }

// restConfig reads a kubeconfig; "": as kubectl finds it, or the pod's service account. An error advises to
// give the flags.
func restConfig(kubeconfig, context, flags string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no API server to talk to: %w. Run in a cluster, or give %s", err, flags)
	}
	return config, nil
}

// leaderNamespace returns the namespace of the Lease. In a cluster "" makes the manager use
// the pod's own namespace; outside a cluster there is none.
func (o *options) leaderNamespace() string {
	if o.leaseNamespace == "" && !inCluster() {
		return "kube-system"
	}
	return o.leaseNamespace
}

func inCluster() bool {
	_, err := rest.InClusterConfig()
	return err == nil
}

// preflight checks that the API server is reachable, and refuses to start alongside a
// Cilium in another IPAM mode. The operator waits later for anything else that is missing.
func preflight(ctx context.Context, c client.Client, o *options, host string) error {
	p := controller.Prerequisites{
		Mapper: c.RESTMapper(), Live: c, Mode: o.settings.Mode,
		CiliumNamespace: o.settings.AgentNamespace, SkipModeCheck: o.settings.SkipModeCheck || o.settings.Shadow || o.settings.Observe,
	}
	if _, err := p.Missing(); err != nil {
		return unreachable(host, err)
	}
	return p.ReadMode(ctx)
}

// unreachable explains why the API server may not answer.
func unreachable(host string, err error) error {
	advice := "Check --kubeconfig, or the network from this host to it"
	if inCluster() {
		advice = "If Cilium replaces kube-proxy, this address works only after Cilium's agent has started on this host, and the agent waits for this operator: " +
			"set k8sServiceHost and k8sServicePort in the values of the chart cilium-pool-operator to an address of the API server that every host reaches, the same as in Cilium's values"
	}
	return fmt.Errorf("cannot reach the API server at %s: %w. %s", host, err, advice)
}
