package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeagent"
	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
)

const nodeAgentUsage = `cilium-pool-operator node-agent runs on each node in Cilium's IPAM mode
delegated-plugin. It lets the CNI plugin cilium-pool-ipam assign addresses of
the node's PodIPBlocks, reports which are in use, and returns closed blocks.

While it is down, pods end as before, new ones start where default is the only
CiliumPodIPPool, and blocks do not change.

Exit codes: 0 asked to stop, 1 cannot run, 2 wrong command line.

Flags:
`

// nodeAgentOptions holds the command line of the subcommand node-agent.
type nodeAgentOptions struct {
	kubeconfig, node, dir, healthAddr string
	plugin, cniBinDir                 string
	reportEvery                       time.Duration
	log                               options
}

func (o *nodeAgentOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "path of a kubeconfig; empty: as kubectl finds it, or the pod's service account")
	fs.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "name of this node; by default the environment's NODE_NAME")
	fs.StringVar(&o.dir, "dir", nodeipam.DefaultDir, "directory of the addresses in use, on the node's disk; the same as in the CNI configuration")
	fs.StringVar(&o.plugin, "cni-plugin", "/cilium-pool-ipam", "file of the CNI plugin, as the image has it")
	fs.StringVar(&o.cniBinDir, "cni-bin-dir", "", "directory of the node's CNI plugins, to install the plugin there; empty: it is not installed")
	fs.DurationVar(&o.reportEvery, "report-interval", 15*time.Second, "shortest time between two reports of the addresses in use")
	fs.StringVar(&o.healthAddr, "health-probe-bind-address", ":8083", "address of /healthz and /readyz; 0: none")
	fs.StringVar(&o.log.logLevel, "log-level", "info", "least severe messages that are logged: debug, info, warn or error")
	fs.StringVar(&o.log.logFormat, "log-format", "json", "json or console")
}

func (o *nodeAgentOptions) validate() error {
	if o.node == "" {
		return errors.New("--node is empty: give the name of this node, or set NODE_NAME")
	}
	if o.reportEvery < time.Second {
		return fmt.Errorf("--report-interval is %s: must be at least 1s", o.reportEvery)
	}
	return nil
}

// runNodeAgent runs the subcommand node-agent.
func runNodeAgent(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	const name = "cilium-pool-operator node-agent"
	o := &nodeAgentOptions{}
	if code, ends := parseSubcommand(name, nodeAgentUsage, args, o.addFlags, o.validate, stdout, stderr); ends {
		return code
	}
	logger, err := o.log.logger()
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 2
	}
	log := zapr.NewLogger(logger)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	if err := o.serve(ctx); err != nil {
		log.Error(err, "stopping")
		return 1
	}
	return 0
}

// serve runs the node agent until ctx ends.
func (o *nodeAgentOptions) serve(ctx context.Context) error {
	store, err := nodeipam.Open(o.dir)
	if err != nil {
		return err
	}
	if err := store.LockAgent(ctx); err != nil {
		return err
	}
	store.RemoveDrafts()
	if o.cniBinDir != "" {
		if err := nodeagent.Install(o.plugin, o.cniBinDir); err != nil {
			return err
		}
	}
	config, err := restConfig(o.kubeconfig, "", "--kubeconfig")
	if err != nil {
		return err
	}
	config.UserAgent = "cilium-pool-node-agent/" + version
	ctx, restart := context.WithCancel(ctx)
	defer restart()
	ready := &atomic.Bool{}
	health, err := o.serveHealth(ctx, ready)
	if err != nil {
		return err
	}
	defer health.Close()
	scheme, err := awaitCilium(ctx, config, ready)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	mgr, err := o.newManager(config, scheme)
	if err != nil {
		return err
	}
	live, err := apiclient.NewLiveClient(mgr)
	if err != nil {
		return err
	}
	agent := &nodeagent.Agent{
		Node: o.node, Store: store, Watched: mgr.GetCache(), Live: live, Client: mgr.GetClient(), ReportEvery: o.reportEvery, Now: time.Now,
		Restart: restart,
	}
	one := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }
	builder := ctrl.NewControllerManagedBy(mgr).Named("node-agent").WithOptions(controller.Options{RateLimiter: common.NewRetries()})
	for _, kind := range []client.Object{&ciliumv2.CiliumNode{}, &corev1.Pod{}, &corev1.Namespace{}, &ciliumv2alpha1.CiliumPodIPPool{}} {
		builder = builder.Watches(kind, handler.EnqueueRequestsFromMapFunc(one))
	}
	watching := reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		result, err := agent.Reconcile(ctx, r)
		ready.Store(err == nil)
		return result, err
	})
	if err := builder.Complete(watching); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// serveHealth serves /healthz and /readyz.
func (o *nodeAgentOptions) serveHealth(ctx context.Context, ready *atomic.Bool) (io.Closer, error) {
	if o.healthAddr == "0" {
		return io.NopCloser(nil), nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.healthAddr)
	if err != nil {
		return nil, fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	unready := func(*http.Request) error {
		if !ready.Load() {
			return errors.New("it has not brought the store and the CiliumNode of its node in step yet: see the log for why")
		}
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/healthz", healthz.CheckHandler{Checker: healthz.Ping})
	mux.Handle("/readyz", healthz.CheckHandler{Checker: unready})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // it ends with the listener
	return server, nil
}

// awaitCilium waits until the API server serves Cilium's kinds, whose CRDs cilium-operator creates, and returns the scheme for
// them. It sets ready while the API server says that it does not serve them: Cilium may be installed later.
func awaitCilium(ctx context.Context, config *rest.Config, ready *atomic.Bool) (*runtime.Scheme, error) {
	known, err := apiclient.Scheme()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Timeout = startupTimeout
	direct, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		return nil, unreachable(config.Host, err)
	}
	logged := ""
	err = wait.PollUntilContextCancel(ctx, 2*time.Second, true, func(context.Context) (bool, error) {
		_, err := direct.RESTMapper().RESTMapping(ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNKindDefinition).GroupKind())
		if err == nil {
			_, err = apiclient.ServedPodIPPools(direct.RESTMapper())
		}
		ready.Store(meta.IsNoMatchError(err) || apierrors.IsNotFound(err))
		if err != nil && err.Error() != logged {
			logged = err.Error()
			ctrl.Log.Info("waiting for the CRDs of Cilium", "because", logged)
		}
		return err == nil, nil
	})
	if err != nil {
		return nil, err
	}
	return apiclient.ServedScheme(direct.RESTMapper())
}

func (o *nodeAgentOptions) newManager(config *rest.Config, scheme *runtime.Scheme) (ctrl.Manager, error) {
	return ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, NewCache: apiclient.NewToolCache, NewClient: apiclient.NewClient,
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: map[client.Object]cache.ByObject{
			&ciliumv2.CiliumNode{}: {Field: fields.OneTermEqualSelector("metadata.name", o.node)},
			&corev1.Pod{}:          {Field: fields.OneTermEqualSelector("spec.nodeName", o.node)},
		}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0", // it is served before there is a manager
	})
}
