package cli

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/check"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// Config returns how to reach the API server.
func (e *Env) Config() (*rest.Config, error) {
	config, err := e.Flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("no API server to talk to: %w. Give --kubeconfig or --context", err)
	}
	config.QPS = -1
	config.UserAgent = "kubectl-cilium-pool/" + e.Version
	return config, nil
}

// ContextName returns the cluster's display name: the context of the kubeconfig; "": there is none.
func (e *Env) ContextName() string {
	if name := *e.Flags.Context; name != "" {
		return name
	}
	raw, err := e.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return ""
	}
	return raw.CurrentContext
}

// Client returns a client for the cluster that the flags name, or for a place.
func (e *Env) Client() (client.Client, error) {
	if e.client != nil {
		return e.client, nil
	}
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	scheme, err := apiclient.Scheme()
	if err != nil {
		return nil, err
	}
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	e.host = config.Host
	e.client, err = apiclient.NewClient(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, e.CannotRead(err)
	}
	return e.client, nil
}

// FindOperator returns the operator's mode and settings, as the cluster shows them. It warns if the
// mode is unknown.
func (e *Env) FindOperator(ctx context.Context) (clusterread.Operator, error) {
	if err := clusterread.CheckModeFlag(e.mode); err != nil {
		return clusterread.Operator{}, Usagef("--mode is %s: %w", e.mode, err)
	}
	c, err := e.Client()
	if err != nil {
		return clusterread.Operator{}, err
	}
	where := e.where()
	if !e.given("cilium-namespace") {
		where.CiliumNamespace = ""
	}
	operator, err := clusterread.Find(ctx, c, where, e.TimeNow())
	if err != nil {
		return operator, e.CannotRead(fmt.Errorf("cannot tell the operator's mode: %w", err))
	}
	e.Warn(operator.ModeUnknown())
	for _, words := range operator.OtherCRDs {
		e.Warn(words)
	}
	return operator, nil
}

// Warn prints a warning, once.
func (e *Env) Warn(words string) {
	if words != "" && !slices.Contains(e.warned, words) {
		e.warned = append(e.warned, words)
		fmt.Fprintln(e.ErrOut, "warning: "+words)
	}
}

// where returns where the flags locate the operator and Cilium's settings.
func (e *Env) where() clusterread.Where {
	return clusterread.Where{LeaseNamespace: *e.Flags.Namespace, LeaseName: e.lease, Mode: e.mode, CiliumNamespace: e.AgentNamespace}
}

// Locate passes these flags to a check.
func (e *Env) Locate(o *check.Options) { o.Locate(e.where(), e.agentSelector, e.given) }

// WarnNoLeader warns that no operator leads, again only after one has led.
func (e *Env) WarnNoLeader(c *clusterview.Cluster) {
	missing := c.Objects.Leader.Missing()
	if missing != "" && !e.leaderless {
		fmt.Fprintln(e.ErrOut, "warning: "+missing)
	}
	e.leaderless = missing != ""
}

// ReadAll reads the cluster once, in the operator's mode. All of it must be readable.
func (e *Env) ReadAll(ctx context.Context) (*clusterview.Cluster, error) {
	operator, err := e.FindOperator(ctx)
	if err != nil {
		return nil, err
	}
	return e.ReadAs(ctx, operator)
}

// Read reads the cluster once, in the operator's mode. It leaves out, and names, what the user may not read.
func (e *Env) Read(ctx context.Context) (*clusterview.Cluster, error) {
	return e.readLenient(ctx, false)
}

// ReadWithoutPods is Read for an answer that needs no pods where agents report the addresses in use.
func (e *Env) ReadWithoutPods(ctx context.Context) (*clusterview.Cluster, error) {
	return e.readLenient(ctx, true)
}

func (e *Env) readLenient(ctx context.Context, agentsReport bool) (*clusterview.Cluster, error) {
	operator, err := e.FindOperator(ctx)
	if err != nil {
		return nil, err
	}
	c, err := e.read(ctx, operator, func(r *clusterread.Reader) {
		r.Lenient = true
		r.WithoutPods = agentsReport && !operator.Mode.WholeBlocks()
	})
	if err == nil && len(c.Objects.Unread) > 0 {
		e.Warn(fmt.Sprintf("you may not list %s: the answer leaves out what they show. The chart's ClusterRole %s grants it", suggest.Few(c.Objects.Unread), ViewRole))
	}
	return c, err
}

// ViewRole is the chart's ClusterRole for the commands that only read, unless a release has another name.
const ViewRole = "cilium-pool-operator-plugin-view"

// ReadObserving reads the cluster once, and describes what another IPAM assigns unless --mode names a mode.
func (e *Env) ReadObserving(ctx context.Context) (*clusterview.Cluster, error) {
	if e.mode == "" {
		e.mode = clusterread.ObserveMode
	}
	return e.ReadAll(ctx)
}

// ReadAs reads the cluster once, in the mode and with the settings of operator. All of it must be readable.
func (e *Env) ReadAs(ctx context.Context, operator clusterread.Operator) (*clusterview.Cluster, error) {
	return e.read(ctx, operator, func(*clusterread.Reader) {})
}

func (e *Env) read(ctx context.Context, operator clusterread.Operator, adjust func(*clusterread.Reader)) (*clusterview.Cluster, error) {
	c, err := e.Client()
	if err != nil {
		return nil, err
	}
	namespace, selector, err := e.AgentSelection(operator)
	if err != nil {
		return nil, err
	}
	progress := check.NewProgress(e.Raw.ErrOut)
	reader := clusterread.Reader{
		Client: c, AgentNamespace: namespace, AgentSelector: selector, Mode: operator.Mode, Observe: operator.Observe, Config: true, FRRNamespace: operator.Settings.FRRNamespace, Lease: operator.Lease, LeaseOptional: operator.ModeGiven(),
		Progress: progress.Read, Now: e.TimeNow,
	}
	adjust(&reader)
	snapshot, err := reader.Read(ctx)
	progress.Clear()
	if err != nil {
		return nil, e.CannotRead(err)
	}
	read := clusterview.New(snapshot, operator)
	read.Client = c
	return read, nil
}

// AgentSelection returns how to select the pods of Cilium's agents: by the flags, or else as the
// operator does. It warns if the operator's settings are unknown.
func (e *Env) AgentSelection(operator clusterread.Operator) (namespace string, selector labels.Selector, err error) {
	e.Warn(operator.SettingsUnknown())
	namespace = operator.Settings.AgentNamespace
	selector = operator.Settings.AgentSelector
	if e.given("cilium-namespace") {
		namespace = e.AgentNamespace
	}
	if e.given("agent-selector") {
		if selector, err = labels.Parse(e.agentSelector); err != nil {
			return "", nil, Usagef("--agent-selector is %s: %w", e.agentSelector, err)
		}
	}
	return namespace, selector, nil
}

// CannotRead explains why the API server could not be read, and suggests a check.
func (e *Env) CannotRead(err error) error { return clusterread.CannotRead(e.host, err) }
