// Package integration runs the operator's controllers against the real API server, with
// simulated agents and kubelets, through the whole life of pools, blocks and nodes.
//
// Only this suite finds effects of the real API server on the controllers: conflicts, late watches,
// validation, field managers.
package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
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
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/fleet"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

var planes cptest.Pool

func TestMain(m *testing.M) {
	// Each operator has its own logger; client-go's global logger only reports watches that
	// break when whole control planes end.
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(planes.Main(m))
}

// patience limits every wait; no test sleeps that long.
const patience = harness.Patience

// env is one test's cluster: no other test uses its control plane at the same time.
type env struct {
	*harness.Bed
	cluster *controlplane.Cluster
	fleet   *fleet.Fleet
	checker *invariant.Checker
	log     *zap.Logger
	health  string // address of /readyz; "": none
}

// newEnv runs the test in parallel with others, on its own control plane, and removes the leftovers
// of earlier tests there.
func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	return newEnvOn(t, planes.Cluster(t))
}

// newServed is newEnv with an operator and the pool all, of eight blocks.
func newServed(t *testing.T) *env {
	t.Helper()
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	return e
}

func newEnvOn(t *testing.T, cluster *controlplane.Cluster) *env {
	t.Helper()
	e := &env{Bed: harness.NewBed(t, cluster.Config()), cluster: cluster, log: testLogger(t)}
	ctx, cancel := context.WithCancel(context.Background()) // the test's own context ends before its clean-up
	e.Ctx = ctx
	e.wipe()
	e.fleet = fleet.New(e.Client, fleet.Options{Agent: fleet.Quick(), Retry: 200 * time.Millisecond})
	var running sync.WaitGroup
	running.Go(func() { e.fleet.Run(ctx) })
	var err error
	e.checker, err = invariant.Watch(ctx, cluster.Config(), invariant.Options{Agents: func() map[string][]netip.Addr {
		if e.fleet.IPAM() == agent.MultiPool { // the rule reads pools of crd mode
			return nil
		}
		return e.fleet.Held()
	}})
	e.Must(err)
	t.Cleanup(func() {
		e.noRuleBroken()
		cancel()
		running.Wait()
	})
	return e
}

// wipe removes the leftovers of earlier tests.
func (e *env) wipe() {
	e.TB.Helper()
	e.Wipe(&corev1.PodList{}, &corev1.NodeList{}, &ciliumv2.CiliumNodeList{}, &ciliumv2alpha1.CiliumPodIPPoolList{},
		&corev1.ServiceList{}, &ciliumv2.CiliumLoadBalancerIPPoolList{}, &v1alpha1.PodIPPoolList{}, &v1alpha1.PodIPPinList{}, &v1alpha1.PodIPBlockList{}, &eventsv1.EventList{})
}

// breaks declares that the test breaks a rule on purpose until it calls end, which fails the
// test if the checker did not report it.
func (e *env) breaks(rule int, subject, text string) (end func()) {
	e.TB.Helper()
	stop, err := e.checker.Exempt(e.Ctx, invariant.Exemption{Rule: rule, Subject: subject, Text: text})
	e.Must(err)
	return func() {
		e.TB.Helper()
		e.Must(stop(e.Ctx))
	}
}

// deleteCiliumNode deletes the CiliumNode, with addresses in use, of an existing Node.
func (e *env) deleteCiliumNode(cn *ciliumv2.CiliumNode) {
	e.TB.Helper()
	end := e.breaks(2, "CiliumNode "+cn.Name, "deleted though its Node is there")
	e.Delete(cn)
	end()
}

// noRuleBroken checks that every version of every object kept the rules.
func (e *env) noRuleBroken() {
	e.TB.Helper()
	ctx, cancel := context.WithTimeout(e.Ctx, patience)
	defer cancel()
	if err := e.checker.Sync(ctx); err != nil {
		e.TB.Errorf("the checker is behind: %v", err)
	}
	if err := e.checker.AskAgents(ctx); err != nil {
		e.TB.Errorf("asking the agents: %v", err)
	}
	for _, v := range e.checker.Violations() {
		e.TB.Errorf("a rule is broken: %s", v)
	}
	if n := e.checker.Stats().Gaps; n > 0 {
		e.TB.Errorf("the checker has missed versions, %d times", n)
	}
}

func testLogger(t *testing.T) *zap.Logger {
	path := fmt.Sprintf("%s/%s.log", logDir(t), strings.ReplaceAll(t.Name(), "/", "-"))
	c := zap.NewDevelopmentConfig()
	c.OutputPaths = []string{path}
	c.Level = zap.NewAtomicLevelAt(zapcore.Level(-1))
	logger, err := c.Build()
	harness.Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the operator's log is in %s", path)
		}
	})
	return logger
}

// quick returns settings that let everything happen within seconds.
func quick() config.Settings {
	policy := expand.DefaultPolicy()
	policy.IdleFor = 300 * time.Millisecond
	policy.AckHold = 200 * time.Millisecond
	policy.AckTimeout = 3 * time.Second
	return config.Settings{
		Defaults:       crd.Defaults{Policy: policy, Cooldown: time.Second, NodeGoneCooldown: 2 * time.Second},
		AgentNamespace: "kube-system", AgentSelector: labels.SelectorFromSet(labels.Set{"k8s-app": "cilium"}),
		AgentSettle: 300 * time.Millisecond, NodeWorkers: 8, NodeCondition: true, KeepCiliumPools: true,
		StartupTaints: crd.DefaultStartupTaints(), CiliumConfigEvery: 200 * time.Millisecond,
	}
}

// operator is a running operator.
type operator struct {
	stop func()
}

// start runs an operator in this process until it is stopped or the test ends.
func (e *env) start(s config.Settings) *operator { return e.startWith(s, nil) }

// startWith runs an operator with writes through wrap.
func (e *env) startWith(s config.Settings, wrap func(client.WithWatch) client.Client) *operator {
	e.TB.Helper()
	s.Registry = prometheus.NewRegistry()
	scheme, err := apiclient.Scheme()
	e.Must(err)
	options := ctrl.Options{
		Scheme: scheme, Cache: informer.CacheOptions(), NewCache: apiclient.NewCache, NewClient: apiclient.NewClient, Logger: zapr.NewLogger(e.log),
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: cmp.Or(e.health, "0"),
		Controller:              ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
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
	mgr, err := ctrl.NewManager(e.configOf(s.Mode), options)
	e.Must(err)
	e.Must(controller.Setup(mgr, s, nil))
	ctx, cancel := context.WithCancel(e.Ctx)
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
			e.TB.Errorf("the operator ended: %v", err)
		}
	}
	e.TB.Cleanup(stop)
	return &operator{stop: stop}
}

// node creates a Node, with an agent on it.
func (e *env) node(name string, nodeLabels map[string]string, families ...agent.Family) *agent.Agent {
	e.TB.Helper()
	e.bareNode(name, nodeLabels)
	return e.agent(name, families...)
}

func (e *env) bareNode(name string, nodeLabels map[string]string) *corev1.Node {
	e.TB.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: nodeLabels}}
	e.Create(n)
	created := n.DeepCopy()
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	// Use a patch, as the operator may have written to the Node by now.
	e.Must(e.Client.Status().Patch(e.Ctx, n, client.StrategicMergeFrom(created)))
	return n
}

// changeNode edits a Node by a patch: others, such as the operator, write it at the same time.
func (e *env) changeNode(name string, mod func(*corev1.Node)) {
	e.TB.Helper()
	n := &corev1.Node{}
	e.Read(n, "", name)
	was := n.DeepCopy()
	mod(n)
	e.Must(e.Client.Patch(e.Ctx, n, client.MergeFrom(was)))
}

// agent boots the machine of a node, and returns its agent.
func (e *env) agent(name string, families ...agent.Family) *agent.Agent {
	return e.fleet.Boot(e.Ctx, name, families...).Agent
}

// ready waits until an agent accepts CNI ADDs.
func (e *env) ready(a *agent.Agent) {
	e.TB.Helper()
	e.waitFor(a.WaitReady)
}

// restart restarts an agent, and waits until it accepts CNI ADDs again.
func (e *env) restart(a *agent.Agent) {
	e.TB.Helper()
	e.waitFor(a.Restart)
}

func (e *env) waitFor(wait func(context.Context) error) {
	e.TB.Helper()
	ctx, cancel := context.WithTimeout(e.Ctx, patience)
	defer cancel()
	e.Must(wait(ctx))
}

// held returns the addresses that the agent of a node has allocated.
func (e *env) held(node string) map[netip.Addr]string { return e.fleet.Machine(node).Addresses() }

// pool creates an IPv4 pool of /27 blocks.
func (e *env) pool(name string, mod func(*v1alpha1.PodIPPool), cidrs ...string) *v1alpha1.PodIPPool {
	e.TB.Helper()
	p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 27}
	for _, c := range cidrs {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: c})
	}
	if mod != nil {
		mod(p)
	}
	e.Create(p)
	return p
}

func (e *env) ciliumNode(name string) (*ciliumv2.CiliumNode, error) {
	cn := &ciliumv2.CiliumNode{}
	return cn, e.Client.Get(e.Ctx, client.ObjectKey{Name: name}, cn)
}

// readCiliumNode returns a CiliumNode that must exist.
func (e *env) readCiliumNode(name string) *ciliumv2.CiliumNode {
	e.TB.Helper()
	cn := &ciliumv2.CiliumNode{}
	e.Read(cn, "", name)
	return cn
}

// eventuallyOn waits for a condition of a CiliumNode, which must exist.
func (e *env) eventuallyOn(what, name string, holds func(cn *ciliumv2.CiliumNode) error) {
	e.TB.Helper()
	e.Eventually(what, func() error {
		cn, err := e.ciliumNode(name)
		if err != nil {
			return err
		}
		return holds(cn)
	})
}

// onNode waits until ok holds for a CiliumNode.
func (e *env) onNode(what, name string, ok func(cn *ciliumv2.CiliumNode) bool) {
	e.TB.Helper()
	e.eventuallyOn(what, name, func(cn *ciliumv2.CiliumNode) error {
		if !ok(cn) {
			return fmt.Errorf("%d addresses, podCIDRs %v, %d in use, release-ips %v", len(cn.Spec.IPAM.Pool), cn.Spec.IPAM.PodCIDRs, len(cn.Status.IPAM.Used), cn.Status.IPAM.ReleaseIPs)
		}
		return nil
	})
}

// eventuallyPool waits for a condition of a pool, which must exist.
func (e *env) eventuallyPool(what, name string, holds func(p *v1alpha1.PodIPPool) error) {
	e.TB.Helper()
	e.Eventually(what, func() error {
		p := &v1alpha1.PodIPPool{}
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		return holds(p)
	})
}

// hasBlocks waits until a node holds n blocks, all of them in service and
// published.
func (e *env) hasBlocks(node string, n int) {
	e.TB.Helper()
	e.eventuallyOn(fmt.Sprintf("node %s has %d published blocks", node, n), node, func(cn *ciliumv2.CiliumNode) error {
		if got := e.Blocks(node); len(got) != n {
			return fmt.Errorf("it has %d blocks", len(got))
		}
		if len(cn.Spec.IPAM.PodCIDRs) != n || len(cn.Spec.IPAM.Pool) != 30*n {
			return fmt.Errorf("%d podCIDRs, %d addresses published", len(cn.Spec.IPAM.PodCIDRs), len(cn.Spec.IPAM.Pool))
		}
		return nil
	})
}

// awaitBlocks counts blocks of a node that satisfy a condition until there are least to most of them.
// "" stands for all nodes, and nil for all blocks.
func (e *env) awaitBlocks(what, node string, least, most int, is func(v1alpha1.PodIPBlock) bool) {
	e.TB.Helper()
	e.Eventually(what, func() error {
		blocks := slices.DeleteFunc(e.Blocks(node), func(b v1alpha1.PodIPBlock) bool { return is != nil && !is(b) })
		if n := len(blocks); n < least || n > most {
			return fmt.Errorf("there are %d: %v", n, blocks)
		}
		return nil
	})
}

func inCIDR(cidr string) func(v1alpha1.PodIPBlock) bool {
	return func(b v1alpha1.PodIPBlock) bool { return blockIn(b, cidr) }
}

func ofPool(pool string) func(v1alpha1.PodIPBlock) bool {
	return func(b v1alpha1.PodIPBlock) bool { return b.Spec.PoolName == pool }
}

// many is more blocks than any test has.
const many = 1000

// reported waits until a node's agent has reported this many addresses in use, and no
// release is pending.
func (e *env) reported(node string, used int) {
	e.TB.Helper()
	e.onNode(fmt.Sprintf("the agent of %s reports %d addresses in use", node, used), node, func(cn *ciliumv2.CiliumNode) bool {
		return len(cn.Status.IPAM.Used) == used && len(cn.Status.IPAM.ReleaseIPs) == 0
	})
}

// load creates pods on a node, and waits until each has its address.
func (e *env) load(node, prefix string, n int) {
	e.TB.Helper()
	e.Pods(node, prefix, n)
	e.running(prefix, n)
}

// running waits until every pod with a name prefix has its address.
func (e *env) running(prefix string, n int) {
	e.TB.Helper()
	e.Eventually(fmt.Sprintf("%d pods of %s run", n, prefix), func() error {
		list := &corev1.PodList{}
		if err := e.Client.List(e.Ctx, list, client.InNamespace("default"), client.MatchingLabels{"app": prefix}); err != nil {
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
	harness.Must(t, os.MkdirAll(dir, 0o755))
	return dir
}
