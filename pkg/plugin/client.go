package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/auditcmd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/live"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
)

func (e *env) config() (*rest.Config, error) {
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("no API server to talk to: %w. Give --kubeconfig or --context", err)
	}
	config.QPS = -1
	config.UserAgent = "kubectl-cilium-pool/" + e.version
	return config, nil
}

func (e *env) client() (client.Client, *rest.Config, error) {
	if c, config, ok := e.placed(); ok {
		return c, config, nil
	}
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	config, err := e.config()
	if err != nil {
		return nil, nil, err
	}
	scheme, err := controller.Scheme()
	if err != nil {
		return nil, nil, err
	}
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read from the API server at %s: %w", config.Host, err)
	}
	return c, config, nil
}

// findMode is the mode that the operator runs in.
func (e *env) findMode(ctx context.Context, c client.Reader) (live.Found, error) {
	if _, err := ciliumnode.ParseMode(e.mode); e.mode != "" && err != nil {
		return live.Found{}, usagef("--mode is %s: %w", e.mode, err)
	}
	found, err := auditcmd.Mode(ctx, c, e.mode, live.Where{
		LeaseNamespace: e.operatorNamespace(), LeaseName: e.lease, CiliumNamespace: e.agentNamespace,
	})
	if err != nil {
		return found, fmt.Errorf("cannot tell the operator's mode: %w", err)
	}
	if found.Denied != "" {
		fmt.Fprintln(e.ErrOut, auditcmd.DeniedWords(found))
	}
	return found, nil
}

// read reads the cluster once, in the operator's mode.
func (e *env) read(ctx context.Context) (*cluster, error) {
	c, config, err := e.client()
	if err != nil {
		return nil, err
	}
	found, err := e.findMode(ctx, c)
	if err != nil {
		return nil, cannotRead(config, err)
	}
	return e.readIn(ctx, found)
}

// readIn reads the cluster once, in a mode.
func (e *env) readIn(ctx context.Context, found live.Found) (*cluster, error) {
	c, config, err := e.client()
	if err != nil {
		return nil, err
	}
	selector, err := e.agents()
	if err != nil {
		return nil, err
	}
	progress := auditcmd.NewProgress(e.ErrOut)
	kept := &keeper{Reader: c}
	reader := live.Reader{Client: kept, AgentNamespace: e.agentNamespace, AgentSelector: selector, Mode: found.Mode, Asks: true, Progress: progress.Read, Now: e.timeNow}
	snapshot, err := reader.Read(ctx)
	progress.Clear()
	if err != nil {
		return nil, cannotRead(config, err)
	}
	cluster := newCluster(snapshot, kept, poolDefaults(found.Mode))
	cluster.modeBy = found.By
	return cluster, nil
}

// agents selects the pods of Cilium's agents.
func (e *env) agents() (labels.Selector, error) {
	selector, err := labels.Parse(e.agentSelector)
	if err != nil {
		return nil, usagef("--agent-selector is %s: %w", e.agentSelector, err)
	}
	return selector, nil
}

func cannotRead(config *rest.Config, err error) error {
	if errors.As(err, &usageError{}) {
		return err
	}
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%w. Is this the right cluster (--context)? Cilium or the chart's CRDs are not installed at %s", err, config.Host)
	}
	return fmt.Errorf("cannot read from the API server at %s: %w", config.Host, err)
}
