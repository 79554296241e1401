// Package integration runs the operator's controllers against the real API
// server, with stand-in agents and kubelets, through the whole life of pools,
// blocks and nodes.
//
// Only it finds what the real API server does to the controllers: conflicts, late
// watches, validation, field managers.
package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

var planes cptest.Pool

func TestMain(m *testing.M) {
	// Each operator has a logger of its own; what client-go says beside it is
	// about the watches of whole control planes going away.
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(planes.Main(m))
}

// patience bounds every wait; it is never slept through.
const patience = harness.Patience

// env is one test's cluster: no other test uses the control plane meanwhile.
type env struct {
	t       *testing.T
	ctx     context.Context
	cluster *controlplane.Cluster
	client  client.WithWatch
	hub     *agent.Hub
	kubelet *agent.Kubelet
	checker *invariant.Checker
	// tore says that the test breaks rules by hand and expects the checker to
	// see it.
	tore atomic.Bool
	// lost says that a CiliumNode was deleted by hand and may not be back yet.
	lost   atomic.Bool
	mu     sync.Mutex
	agents map[string]*agent.Agent
	failed chan error // CNI ADDs that failed
	log    *zap.Logger
}

// newEnv lets the test run beside others, on a control plane of its own, which it
// clears of what earlier tests left.
func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	return newEnvOn(t, planes.Cluster(t))
}

func newEnvOn(t *testing.T, cluster *controlplane.Cluster) *env {
	t.Helper()
	c, err := newClient(cluster)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // the test's own ends before its clean-up
	e := &env{t: t, ctx: ctx, cluster: cluster, client: c, hub: agent.NewHub(c), agents: map[string]*agent.Agent{},
		failed: make(chan error, 10000), log: testLogger(t)}
	e.wipe()
	e.kubelet = agent.NewKubelet(c, agent.KubeletOptions{Retry: 200 * time.Millisecond, OnAdd: func(_ client.ObjectKey, err error) {
		if err != nil {
			e.failed <- err
		}
	}})
	done := make(chan struct{}, 2)
	go func() { e.hub.Run(ctx); done <- struct{}{} }()
	go func() { e.kubelet.Run(ctx); done <- struct{}{} }()
	e.checker, err = invariant.Watch(ctx, cluster.Config(), invariant.Options{
		Agents: e.held,
		Expect: func(v invariant.Violation) bool {
			return e.tore.Load() || e.lost.Load() && v.Rule == 2 && strings.Contains(v.Text, "held by the agent")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.noRuleBroken()
		cancel()
		<-done
		<-done
	})
	return e
}

func newClient(cluster *controlplane.Cluster) (client.WithWatch, error) {
	scheme, err := controller.Scheme()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(cluster.Config(), client.Options{Scheme: scheme})
}

// noRuleBroken checks that every version of every object kept the rules.
func (e *env) noRuleBroken() {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	if err := e.checker.Sync(ctx); err != nil {
		e.t.Errorf("the checker is behind: %v", err)
	}
	if err := e.checker.AskAgents(ctx); err != nil {
		e.t.Errorf("asking the agents: %v", err)
	}
	for _, v := range e.checker.Violations() {
		e.t.Errorf("a rule is broken: %s", v)
	}
	if n := e.checker.Stats().Gaps; n > 0 {
		e.t.Errorf("the checker has missed versions, %d times", n)
	}
}

// held are the addresses that agents hold right now.
func (e *env) held() map[string][]netip.Addr {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string][]netip.Addr{}
	for name, a := range e.agents {
		out[name] = slices.Collect(maps.Keys(a.Addresses()))
	}
	return out
}

// wipe deletes everything, finalizers and all.
func (e *env) wipe() {
	e.t.Helper()
	if err := harness.Wipe(e.ctx, e.client,
		&corev1.PodList{}, &corev1.NodeList{}, &ciliumv2.CiliumNodeList{}, &ciliumv2alpha1.CiliumPodIPPoolList{},
		&v1alpha1.PodIPPoolList{}, &v1alpha1.PodIPBlockList{}, &v1alpha1.PodIPPoolHistoryList{}, &eventsv1.EventList{},
	); err != nil {
		e.t.Fatal(err)
	}
}

func testLogger(t *testing.T) *zap.Logger {
	path := fmt.Sprintf("%s/%s.log", logDir(t), strings.ReplaceAll(t.Name(), "/", "-"))
	c := zap.NewDevelopmentConfig()
	c.OutputPaths = []string{path}
	c.Level = zap.NewAtomicLevelAt(zapcore.Level(-1))
	logger, err := c.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the operator's log is in %s", path)
		}
	})
	return logger
}

// quick are settings under which everything happens within seconds.
func quick() controller.Settings {
	policy := expand.DefaultPolicy()
	policy.IdleFor = 300 * time.Millisecond
	policy.AckHold = 200 * time.Millisecond
	policy.AckTimeout = 3 * time.Second
	return controller.Settings{
		Defaults:       crd.Defaults{Policy: policy, Cooldown: time.Second, NodeGoneCooldown: 2 * time.Second},
		AgentNamespace: "kube-system", AgentSelector: labels.SelectorFromSet(labels.Set{"k8s-app": "cilium"}),
		AgentSettle: 300 * time.Millisecond, NodeWorkers: 8, NodeCondition: true, KeepCiliumPools: true,
		StartupTaints: crd.DefaultStartupTaints(),
	}
}

// operator is a running operator.
type operator struct {
	stop func()
}

// start runs an operator in this process until its stop or the test's end.
func (e *env) start(s controller.Settings) *operator { return e.startWith(s, nil) }

// startWith runs an operator whose writes go through wrap.
func (e *env) startWith(s controller.Settings, wrap func(client.WithWatch) client.Client) *operator {
	e.t.Helper()
	s.Registry = prometheus.NewRegistry()
	scheme, err := controller.Scheme()
	if err != nil {
		e.t.Fatal(err)
	}
	options := ctrl.Options{
		Scheme: scheme, Cache: informer.CacheOptions(), Logger: zapr.NewLogger(e.log),
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(30 * time.Second),
	}
	if wrap != nil {
		options.NewClient = func(c *rest.Config, o client.Options) (client.Client, error) {
			direct, err := client.NewWithWatch(c, o)
			if err != nil {
				return nil, err
			}
			return wrap(direct), nil
		}
	}
	mgr, err := ctrl.NewManager(e.cluster.Config(), options)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := controller.Setup(mgr, s); err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			e.t.Errorf("the operator ended: %v", err)
		}
	}
	e.t.Cleanup(stop)
	return &operator{stop: stop}
}

// node makes a Node, with an agent on it.
func (e *env) node(name string, nodeLabels map[string]string, families ...agent.Family) *agent.Agent {
	e.t.Helper()
	e.bareNode(name, nodeLabels)
	return e.agent(name, families...)
}

func (e *env) bareNode(name string, nodeLabels map[string]string) *corev1.Node {
	e.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: nodeLabels}}
	e.create(n)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	if err := e.client.Status().Update(e.ctx, n); err != nil {
		e.t.Fatal(err)
	}
	return n
}

// changeNode edits a Node.
func (e *env) changeNode(name string, mod func(*corev1.Node)) {
	e.t.Helper()
	n := &corev1.Node{}
	if err := e.client.Get(e.ctx, client.ObjectKey{Name: name}, n); err != nil {
		e.t.Fatal(err)
	}
	mod(n)
	if err := e.client.Update(e.ctx, n); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) agent(name string, families ...agent.Family) *agent.Agent {
	e.t.Helper()
	return e.agentUntil(e.ctx, name, families...)
}

// agentUntil is an agent that is taken away when ctx ends, with its disk.
func (e *env) agentUntil(ctx context.Context, name string, families ...agent.Family) *agent.Agent {
	e.t.Helper()
	a := agent.New(e.client, e.hub, agent.Options{
		NodeName: name, Families: families, Pod: true, Seed: uint64(len(e.agents)) + 1,
		UpdateRate: 200 * time.Millisecond, PollInterval: 50 * time.Millisecond, CrashBackoff: 100 * time.Millisecond,
	})
	e.kubelet.Attach(a)
	e.mu.Lock()
	e.agents[name] = a
	e.mu.Unlock()
	go a.Run(ctx)
	return a
}

func (e *env) create(o client.Object) {
	e.t.Helper()
	if err := e.client.Create(e.ctx, o); err != nil {
		e.t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
}

// pods makes n pods bound to a node and named after it.
func (e *env) pods(node, prefix string, n int) {
	e.t.Helper()
	for i := range n {
		e.create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%s-%d", prefix, node, i), Labels: map[string]string{"app": prefix}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		})
	}
}

// deletePods deletes the pods of a prefix, but for the first keep of each node.
func (e *env) deletePods(prefix string, keep func(name string) bool) {
	e.t.Helper()
	list := &corev1.PodList{}
	if err := e.client.List(e.ctx, list, client.InNamespace("default"), client.MatchingLabels{"app": prefix}); err != nil {
		e.t.Fatal(err)
	}
	for i := range list.Items {
		if keep == nil || !keep(list.Items[i].Name) {
			if err := e.client.Delete(e.ctx, &list.Items[i]); client.IgnoreNotFound(err) != nil {
				e.t.Fatal(err)
			}
		}
	}
}

// pool makes an IPv4 pool of /27 blocks.
func (e *env) pool(name string, mod func(*v1alpha1.PodIPPool), cidrs ...string) *v1alpha1.PodIPPool {
	e.t.Helper()
	p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 27}
	for _, c := range cidrs {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: c})
	}
	if mod != nil {
		mod(p)
	}
	e.create(p)
	return p
}

// eventually waits until what holds, or fails the test with the last reason why
// it does not.
func (e *env) eventually(what string, holds func() error) {
	e.t.Helper()
	harness.Eventually(e.t, what, holds)
}

func (e *env) ciliumNode(name string) (*ciliumv2.CiliumNode, error) {
	cn := &ciliumv2.CiliumNode{}
	return cn, e.client.Get(e.ctx, client.ObjectKey{Name: name}, cn)
}

// eventuallyOn is eventually for what holds of a CiliumNode, which has to be there.
func (e *env) eventuallyOn(what, name string, holds func(cn *ciliumv2.CiliumNode) error) {
	e.t.Helper()
	e.eventually(what, func() error {
		cn, err := e.ciliumNode(name)
		if err != nil {
			return err
		}
		return holds(cn)
	})
}

// blocks are a node's blocks; "" is all nodes.
func (e *env) blocks(node string) []v1alpha1.PodIPBlock {
	e.t.Helper()
	list := &v1alpha1.PodIPBlockList{}
	var opts []client.ListOption
	if node != "" {
		opts = append(opts, client.MatchingFields{"spec.nodeName": node})
	}
	if err := e.client.List(e.ctx, list, opts...); err != nil {
		e.t.Fatal(err)
	}
	return list.Items
}

// hasBlocks waits until a node holds n blocks, all of them in service and
// published.
func (e *env) hasBlocks(node string, n int) {
	e.t.Helper()
	e.eventuallyOn(fmt.Sprintf("node %s has %d published blocks", node, n), node, func(cn *ciliumv2.CiliumNode) error {
		if got := e.blocks(node); len(got) != n {
			return fmt.Errorf("it has %d blocks", len(got))
		}
		if len(cn.Spec.IPAM.PodCIDRs) != n || len(cn.Spec.IPAM.Pool) != 30*n {
			return fmt.Errorf("%d podCIDRs, %d addresses published", len(cn.Spec.IPAM.PodCIDRs), len(cn.Spec.IPAM.Pool))
		}
		return nil
	})
}

// reported waits until a node's agent has reported so many addresses in use, and
// nothing is asked of it.
func (e *env) reported(node string, used int) {
	e.t.Helper()
	e.eventuallyOn(fmt.Sprintf("the agent of %s reports %d addresses in use", node, used), node, func(cn *ciliumv2.CiliumNode) error {
		if len(cn.Status.IPAM.Used) != used || len(cn.Status.IPAM.ReleaseIPs) > 0 {
			return fmt.Errorf("%d; release-ips %v", len(cn.Status.IPAM.Used), cn.Status.IPAM.ReleaseIPs)
		}
		return nil
	})
}

// running waits until every pod of a prefix has its address.
func (e *env) running(prefix string, n int) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("%d pods of %s run", n, prefix), func() error {
		list := &corev1.PodList{}
		if err := e.client.List(e.ctx, list, client.InNamespace("default"), client.MatchingLabels{"app": prefix}); err != nil {
			return err
		}
		with := 0
		for _, p := range list.Items {
			if len(p.Status.PodIPs) > 0 && p.DeletionTimestamp == nil {
				with++
			}
		}
		if with != n {
			return fmt.Errorf("%d of %d have an address", with, len(list.Items))
		}
		return nil
	})
}

func logDir(t *testing.T) string {
	dir := os.Getenv("CPO_TEST_LOGS")
	if dir == "" {
		dir = os.TempDir() + "/cilium-pool-operator-tests"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
