package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// findOperator is what the cluster says of the operator. Where its mode is not known
// that is printed.
func (e *env) findOperator(ctx context.Context, c client.Reader) (auditcmd.Operator, error) {
	if _, err := ciliumnode.ParseMode(e.mode); e.mode != "" && err != nil {
		return auditcmd.Operator{}, usagef("--mode is %s: %w", e.mode, err)
	}
	operator, err := auditcmd.FindOperator(ctx, c, e.mode, live.Where{
		LeaseNamespace: e.operatorNamespace(), LeaseName: e.lease, CiliumNamespace: e.agentNamespace,
	})
	if err != nil {
		return operator, fmt.Errorf("cannot tell the operator's mode: %w", err)
	}
	e.warn(operator.ModeUnknown())
	for _, words := range operator.OtherCRDs {
		e.warn(words)
	}
	return operator, nil
}

// warn prints a warning, once.
func (e *env) warn(words string) {
	if words != "" && !slices.Contains(e.warned, words) {
		e.warned = append(e.warned, words)
		fmt.Fprintln(e.ErrOut, "warning: "+words)
	}
}

// read reads the cluster once, in the operator's mode.
func (e *env) read(ctx context.Context) (*cluster, error) {
	c, config, err := e.client()
	if err != nil {
		return nil, err
	}
	operator, err := e.findOperator(ctx, c)
	if err != nil {
		return nil, cannotRead(config, err)
	}
	return e.readFor(ctx, operator)
}

// readFor reads the cluster once, as the operator does.
func (e *env) readFor(ctx context.Context, operator auditcmd.Operator) (*cluster, error) {
	c, config, err := e.client()
	if err != nil {
		return nil, err
	}
	e.warn(operator.SettingsUnknown())
	namespace, selector, err := e.agents(operator.Settings)
	if err != nil {
		return nil, err
	}
	progress := auditcmd.NewProgress(e.raw.ErrOut)
	kept := &keeper{Reader: c}
	reader := live.Reader{Client: kept, AgentNamespace: namespace, AgentSelector: selector, Mode: operator.Mode, Asks: true, Histories: true, Progress: progress.Read, Now: e.timeNow}
	snapshot, err := reader.Read(ctx)
	progress.Clear()
	if err != nil {
		return nil, cannotRead(config, err)
	}
	return newCluster(snapshot, kept.ciliumNodes, operator), nil
}

// agents selects the pods of Cilium's agents: as the flags say, else as the
// operator does.
func (e *env) agents(operator controller.Settings) (namespace string, selector labels.Selector, err error) {
	namespace, selector = operator.AgentNamespace, operator.AgentSelector
	if e.given("cilium-namespace") {
		namespace = e.agentNamespace
	}
	if e.given("agent-selector") {
		if selector, err = labels.Parse(e.agentSelector); err != nil {
			return "", nil, usagef("--agent-selector is %s: %w", e.agentSelector, err)
		}
	}
	return namespace, selector, nil
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
