package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
)

const (
	// startupTimeout bounds the checks before the operator starts.
	startupTimeout = 30 * time.Second
	// gcPercent is how much garbage there may be beside the heap in use. What is
	// read at start would otherwise make the process twice as large as it is to
	// be, once and for good.
	gcPercent = 50
)

// serve runs the operator until ctx ends or the lead is lost.
func serve(ctx context.Context, o *options) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	scheme, err := controller.Scheme()
	if err != nil {
		return err
	}
	starting, started := context.WithTimeout(ctx, startupTimeout)
	defer started()
	direct, err := client.New(bounded(starting, config), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("cannot reach the API server at %s: %w. Check --kubeconfig, or the network from this host to it", config.Host, err)
	}
	if err := preflight(starting, direct, o, config.Host); err != nil {
		return err
	}
	mgr, err := o.newManager(config, scheme)
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := controller.Setup(mgr, o.settings); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newManager elects a leader by a Lease that also has the settings.
func (o *options) newManager(config *rest.Config, scheme *runtime.Scheme) (ctrl.Manager, error) {
	options := ctrl.Options{
		Scheme: scheme, Cache: controller.CacheOptions(),
		LeaderElection: o.leaderElect, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &o.leaseDuration, RenewDeadline: part(o.leaseDuration, 2, 3), RetryPeriod: part(o.leaseDuration, 2, 15),
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
	options.LeaderElectionResourceLockInterface = lock
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, err
	}
	lock.LockConfig.EventRecorder = mgr.GetEventRecorderFor(lock.Identity()) //nolint:staticcheck // leader election has yet to learn of the newer events
	return mgr, nil
}

// bounded ends every request with ctx, also those that are given none, as the
// look-up of kinds is not.
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
	if _, has := r.Context().Deadline(); has {
		return t.next.RoundTrip(r)
	}
	return t.next.RoundTrip(r.WithContext(t.ctx))
}

func part(d time.Duration, num, den int64) *time.Duration {
	p := time.Duration(int64(d) * num / den)
	return &p
}

func (o *options) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no API server to talk to: %w. Run in a cluster, or give --kubeconfig", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	config.UserAgent = "cilium-pool-operator/" + version
	return config, nil
}

// leaderNamespace lets the manager find the pod's own namespace; outside a
// cluster there is none.
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

// preflight refuses to start where the operator could do nothing or harm.
func preflight(ctx context.Context, c client.Client, o *options, host string) error {
	for _, kind := range []struct{ group, version, kind, mend string }{
		{"cilium-pool.io", "v1alpha1", "PodIPPool", "install the chart's CRDs"},
		{"cilium-pool.io", "v1alpha1", "PodIPBlock", "install the chart's CRDs"},
		{"cilium.io", "v2", "CiliumNode", "install Cilium first: cilium-operator brings this CRD"},
	} {
		gk := schema.GroupKind{Group: kind.group, Kind: kind.kind}
		_, err := c.RESTMapper().RESTMapping(gk, kind.version)
		switch {
		case meta.IsNoMatchError(err):
			return fmt.Errorf("the API server at %s does not know %s.%s/%s: %s", host, kind.kind, kind.group, kind.version, kind.mend)
		case err != nil:
			return fmt.Errorf("cannot reach the API server at %s: %w. Check --kubeconfig, or the network from this host to it", host, err)
		}
	}
	if o.skipCiliumCheck || o.settings.Shadow {
		return nil
	}
	config := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: o.settings.AgentNamespace, Name: "cilium-config"}, config)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading ConfigMap %s/cilium-config: %w", o.settings.AgentNamespace, err)
	}
	if mode := config.Data["ipam"]; mode != "" && mode != o.mode {
		return fmt.Errorf("wrong IPAM mode: Cilium runs with %q (ConfigMap %s/cilium-config, key ipam), in which agents ignore what --mode=%s writes: set ipam.mode=%s in Cilium's values, another --mode, or give --shadow to look on meanwhile (docs/migration.md)", mode, o.settings.AgentNamespace, o.mode, o.mode)
	}
	return nil
}
